"""Structural causes of a deviation: a call of a live model, or two, made otherwise, with which the two models agree.

Operands of a concatenation or a difference exchanged; a mask inverted, missing or too much; another axis; a reshape in
the other layout; a crop or a pad at the other end; a function too much, or another one; a norm on its other side; a sum of another tensor.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from parity.common.base.errors import ExternalModelError
from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Explanation
from parity.common.external.pairs.bench import Bench
from parity.common.external.pairs.explain import Attribution, DeviatingTensor, made
from parity.common.external.pairs.points import Segment
from parity.common.external.process.altering import GRADIENT, HEADS, MANY

# How a way is called that puts a norm on the other side of a function, and how many norms near a place are tried.
_MOVED, _NEAREST = "moved", 4


@dataclass(frozen=True)
class Alteration:
    """A call of a live model that is made otherwise.

    side: whose. call: its number in a pass. way: None as it is. name: of the function or layer. text: what is done.
    """

    side: str
    call: int
    way: str | None
    name: str = ""
    text: str = ""

    def make(self, bench: Bench) -> Alteration:
        """Make it so, and return what takes it back."""
        worker = bench.keras if self.side == "keras" else bench.torch
        return Alteration(self.side, self.call, worker.alter(self.call, self.way))


class Structure:
    """The search for structural causes; what was right at one place is tried at others first."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._right: set[tuple[str, str | None]] = set()
        self._made: set[tuple[str, int]] = set()

    def causes(
        self,
        tensor: DeviatingTensor,
        training: bool,
        measure: Callable[[], float],
        keeps: Callable[[Sequence[Alteration]], bool],
        moved_only: bool = False,
    ) -> list[Attribution]:
        """The alterations that make a deviation vanish, one attribution each; none where no one or two of them do.

        Args:
            tensor: what deviates.
            training: the mode of the pass in which it does.
            measure: its deviation by itself, or of what is made of it, as torch's model is now.
            keeps: whether all that agreed before does so with alterations, too; else they are no cause.
            moved_only: whether only a norm on the other side of a function is looked for.
        """
        began = time.monotonic()
        measure()
        around = replace(tensor, measure=lambda injections: measure())

        # What is left of the deviation with one call made otherwise.
        left_with: dict[Alteration, float] = {}

        def agrees(alterations: Sequence[Alteration], measured: DeviatingTensor = around) -> bool:
            deviation = measured.deviation_with(alterations)
            if len(alterations) == 1:
                left_with[alterations[0]] = deviation
            return deviation <= limits.LIVE_FLOAT64 and keeps(alterations)

        # A search in a large model ends, too.
        left = limits.SECONDS_OF_TRIALS / max(time.monotonic() - began, limits.SHORTEST_TRIAL)
        singles, pairs = (min(most, int(left) + 1) for most in (limits.ALTERATIONS_TRIED, limits.PAIRS_TRIED))
        torch = [
            each
            for each in self._candidates("torch", tensor, training)
            if not (each.way or "").startswith(GRADIENT)
        ]
        moved = [each for each in torch if (each.way or "").startswith(_MOVED)][:_NEAREST]
        torch = (
            moved if moved_only else [each for each in torch if each.way not in {one.way for one in moved}]
        )
        many = [each for each in torch if (each.way or "").startswith(MANY)]
        torch = [each for each in torch if each not in many]
        likely = [each for each in (*torch, *many) if (each.name, each.way) in self._right]
        tried: Iterator[Sequence[Alteration]] = itertools.chain(
            [likely] if likely else [],
            # One cause, where with the function left out there would be a second.
            ([each] for each in moved),
            ([each] for each in torch[:singles]),
            ([*likely, each] for each in torch[:singles] if likely and each not in likely),
            _alike(torch[:singles]),
            ([each] for each in many[:singles]),
            _alike(many[:singles]),
        )
        found = next((each for each in tried if agrees(each)), None)
        if found is None and moved_only:
            return []
        if found is None:
            keras = list(itertools.islice(self._candidates("keras", tensor, training), singles))
            # A dropout at another place is one too much on either side.
            dropped = (
                [each for each in side if each.way == "absent" and "drops" in each.text]
                for side in (torch, keras)
            )
            tried = itertools.chain(
                ([each] for each in keras), itertools.islice(itertools.product(*dropped), pairs)
            )
            found = next((each for each in tried if agrees(each, tensor)), None)
        # Of what another shape hides, two at once could be anything.
        if found is None and math.isfinite(tensor.deviation):
            best_first = sorted((*torch, *many), key=lambda each: left_with.get(each, math.inf))
            two = (pair for pair in itertools.combinations(best_first, 2) if pair[0].call != pair[1].call)
            some = itertools.islice(two, pairs)
            found = next((each for each in some if agrees(each)), None)
        if found is None:
            return []
        for each in list(found):
            fewer = [other for other in found if other is not each]
            if fewer and agrees(fewer):
                found = fewer
        self._right |= {(each.name, each.way) for each in found}
        self._made |= {(each.side, each.call) for each in found}
        if len({_kind(each) for each in found}) == 1:
            return [_attributed(found, tensor)]
        return [_attributed([each], tensor, len(found) - 1) for each in found]

    def of_gradients(self, tensor: DeviatingTensor) -> list[Attribution]:
        """The alterations that change gradients alone and make their deviation vanish, as one; none where none do.

        Args:
            tensor: what measures the gradients; it is of no segment.
        """
        calls = [
            each
            for each in self._candidates("torch", tensor, training=True)
            if (each.way or "").startswith(GRADIENT)
        ]
        tried = itertools.chain(([each] for each in calls), _alike(calls))
        found = next((each for each in tried if tensor.deviation_with(each) <= limits.LIVE_FLOAT64), None)
        return [] if found is None else [_attributed(found, tensor)]

    def of_loss(self, deviation: Callable[[], float]) -> list[Attribution]:
        """The calls of torch's own loss that, made otherwise, make it Keras's; one attribution each kind, none where none do.

        Args:
            deviation: of the losses and of what they send back, as they are now; infinite where they cannot be computed.
        """
        bench, began = self._bench, time.monotonic()
        calls, _ = bench.torch.alterations(bench.inputs[1], bench.losses[1], training=True)
        every = [
            Alteration("torch", number, way, call["name"], f"loss: {call['name']} {text}")
            for number, call in enumerate(calls)
            if call["in_loss"]
            for way, text in call["ways"].items()
            if not way.startswith(GRADIENT)
        ]
        every.sort(key=lambda each: (each.way or "").startswith(MANY))
        left_with: dict[Alteration, float] = {}

        def trials() -> Iterator[Sequence[Alteration]]:
            yield from ([each] for each in every)
            yield from _alike(every)
            best_first = sorted(every, key=lambda each: left_with.get(each, math.inf))
            two = (pair for pair in itertools.combinations(best_first, 2) if pair[0].call != pair[1].call)
            yield from itertools.islice(two, limits.PAIRS_TRIED)

        worst = deviation()
        for number, tried in enumerate(trials()):
            if number and time.monotonic() - began > 2 * limits.SECONDS_OF_TRIALS:
                break
            try:
                with made(bench, tried):
                    apart = deviation()
            except ExternalModelError:
                apart = math.inf
            if len(tried) == 1:
                left_with[tried[0]] = apart
            if apart <= limits.LIVE_FLOAT64:
                segment = Segment(None, (), frozenset(), frozenset())
                tensor = DeviatingTensor(bench, segment, [], lambda injections: deviation(), worst)
                if len({_kind(each) for each in tried}) == 1:
                    return [_attributed(tried, tensor)]
                return [_attributed([each], tensor, len(tried) - 1) for each in tried]
        return []

    def _candidates(self, side: str, tensor: DeviatingTensor, training: bool) -> Iterator[Alteration]:
        """What can be tried: of the calls before the place the nearest first."""
        bench, point = self._bench, tensor.segment.point
        worker, inputs = (bench.torch, bench.inputs[1]) if side == "torch" else (bench.keras, bench.inputs[0])
        calls, taps = worker.alterations(inputs, training=training)
        tap = "" if point is None else point.torch if side == "torch" else point.keras
        last = taps.index(tap) if tap in taps else len(taps)
        near = sorted(enumerate(calls), key=lambda each: abs(last + 0.5 - each[1]["place"]))
        for number, call in near:
            place = call["place"]
            # What has another shape than it should may be put right by what comes after it.
            after = place > last and math.isfinite(tensor.deviation)
            if after or (side, number) in self._made:
                continue
            where = f" behind {taps[place - 1]}" if place and side == "torch" else ""
            for way, text in call["ways"].items():
                yield Alteration(side, number, way, call["name"], f"{call['name']}{where} {text}")


def _alike(candidates: Sequence[Alteration]) -> Iterator[Sequence[Alteration]]:
    """The same made otherwise in all calls of a function: code of a block is called by each of them."""
    groups: dict[tuple[str, str | None], list[Alteration]] = {}
    for each in candidates:
        groups.setdefault(_kind(each), []).append(each)
    return (group for group in groups.values() if len(group) > 1)


def _kind(alteration: Alteration) -> tuple[str, str | None]:
    """What calls have in common that are made otherwise in one way."""
    return ("" if alteration.way == HEADS else alteration.name), alteration.way


def _attributed(alterations: Sequence[Alteration], tensor: DeviatingTensor, others: int = 0) -> Attribution:
    """The explanation by one call, or by several in which the same is made otherwise."""
    first, more = alterations[0], len(alterations) - 1
    ours = first.side == "torch"
    also = f", and the other {others} named here" if others else ""
    these = f"these {more + 1} calls" if more else "this call"
    evidence = f"by experiment: with {these} made so{also}, nothing is left of the deviation of {tensor.deviation:.2g}"
    text = f"{'torch' if ours else 'Keras'}'s {first.text}" + (
        f", and so in {more} more calls" if more else ""
    )
    fix = f"change {these} in torch" if ours else "do the same in torch"
    point = tensor.segment.point
    why = Explanation(
        f"structure:{first.name} {first.way}",
        text,
        "confirmed",
        fix,
        evidence,
        defect=first.side,
        layers=("the outputs" if point is None else point.keras_layer,),
    )
    return Attribution(why, tuple(alterations))
