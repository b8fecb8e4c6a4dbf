"""Structural causes of a deviation: a call of a live model, or two, made otherwise, with which the two models agree.

Operands of a concatenation or a difference exchanged; a mask inverted, missing or too much; another axis; a reshape in
the other layout; a crop or a pad at the other end; a function too much, or another one; a norm on its other side; a sum of another tensor.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Explanation
from parity.common.external.pairs.bench import Bench
from parity.common.external.pairs.constants import fitted
from parity.common.external.pairs.explain import Attribution, DeviatingTensor
from parity.common.external.pairs.points import NOWHERE
from parity.common.external.process.altering import CONSTANT, GRADIENT, HEADS, MANY

# How ways are called that put a norm on the other side of a function, or take the weights of another layer; and how many
# norms near a place are tried.
MOVED, OTHER_WEIGHTS, _NEAREST = "moved", f"{MANY} weights", 4


@dataclass(frozen=True)
class Alteration:
    """A call of a live model that is made otherwise.

    side: whose. call: its number in a pass. way: None as it is. name: of the function or layer. text: what is done.
    is_written: whether a person would write it so; a number that was only fitted is no proof.
    """

    side: str
    call: int
    way: str | None
    name: str = ""
    text: str = ""
    is_written: bool = True

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
        # The share of the time of a search that the next one has.
        self._patience = 1.0

    def causes(
        self,
        tensor: DeviatingTensor,
        training: bool,
        measure: Callable[[], float],
        keeps: Callable[[Sequence[Alteration]], bool],
        only: str = "",
    ) -> list[Attribution]:
        """The alterations that make a deviation vanish, one attribution each; none where no one or two of them do.

        Args:
            tensor: what deviates.
            training: the mode of the pass in which it does.
            measure: its deviation by itself, or of what is made of it, as torch's model is now.
            keeps: whether all that agreed before does so with alterations, too; else they are no cause.
            only: how the ways begin that are looked for, '' for all.
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
        seconds = limits.SECONDS_OF_TRIALS * self._patience
        left = seconds / max(time.monotonic() - began, limits.SHORTEST_TRIAL)
        singles, pairs = (min(most, int(left) + 1) for most in (limits.ALTERATIONS_TRIED, limits.PAIRS_TRIED))
        torch = [
            each
            for each in self._candidates("torch", tensor, training)
            if (each.way or "").startswith(only) and not (each.way or "").startswith(GRADIENT)
        ]
        moved = [each for each in torch if (each.way or "").startswith(MOVED)][:_NEAREST]
        torch = [each for each in torch if each.way not in {one.way for one in moved}]
        many = [each for each in torch if (each.way or "").startswith(MANY)]
        torch = [each for each in torch if not (each.way or "").startswith(MANY)]
        likely = [each for each in (*torch, *many) if (each.name, each.way) in self._right]
        # A block's mistake is made again here, perhaps in one of several such calls, and there is another beside it.
        again = [likely, *([each] for each in likely if len(likely) > 1)] if likely else []
        tried: Iterator[Sequence[Alteration]] = itertools.chain(
            again,
            # One cause, where with the function left out there would be a second.
            ([each] for each in moved),
            ([each] for each in torch[:singles]),
            ([*some, each] for some in again for each in torch[:singles] if each not in some),
            _alike(torch[:singles]),
            ([each] for each in many[:singles]),
            _alike(many[:singles]),
        )
        # What agrees without keeping the rest costs more than what does not agree.
        ends = began + limits.LONGEST_SEARCH * self._patience
        found = next((each for each in _until(ends, tried) if agrees(each)), None)
        if found is None and only:
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
            found = next((each for each in _until(ends, tried) if agrees(each, tensor)), None)
        if found is None and math.isfinite(tensor.deviation):
            numbers = _by_numbers(self._calls("torch", tensor, training), around.deviation_with, seconds)
            numbers = numbers if numbers and keeps(numbers) else []
            found = numbers if numbers and numbers[0].is_written else None
        # Of what another shape hides, two at once could be anything.
        if found is None and math.isfinite(tensor.deviation):
            # Of those with many ways a few, since each would be tried with each.
            some = itertools.islice(_two(torch, left_with), pairs)
            more = itertools.islice(_two((*torch, *many), left_with), pairs)
            both = _until(ends, itertools.chain(some, more))
            found = next((each for each in both if agrees(each)), None) or numbers or None
        if found is None:
            # Where many places deviate by what is not known here, all of them together end in a minute or two.
            self._patience /= 2
            return []
        found = _needed(found, agrees)
        if {(each.side, each.way) for each in found} == {("torch", "absent"), ("keras", "absent")}:
            # Both drop: elsewhere, or along other axes.
            found = [
                replace(each, text=f"{each.text}; the other side does, at another place or along other axes")
                for each in found
            ]
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

    def of_loss(self, deviation: Callable[[], float], elsewhere: Callable[[], float]) -> list[Attribution]:
        """The calls of torch's own loss that, made otherwise, make it Keras's; one attribution each kind, none where none do.

        Args:
            deviation: of the losses and of what they send back, as they are now; infinite where they cannot be computed.
            elsewhere: the same with other targets, which were not used to find a cause.
        """
        bench, began = self._bench, time.monotonic()
        calls, _ = bench.torch.alterations(bench.inputs[1], bench.losses[1], training=True)
        every = [
            Alteration("torch", number, way, call["name"], f"loss: {call['name']}{_at(call)} {text}")
            for number, call in enumerate(calls)
            if call["in_loss"]
            for way, text in call["ways"].items()
        ]
        every.sort(key=lambda each: (each.way or "").startswith(MANY))
        left_with: dict[Alteration, float] = {}
        tensor = DeviatingTensor(bench, NOWHERE, [], lambda injections: deviation(), deviation())
        control = replace(tensor, measure=lambda injections: elsewhere())

        def agrees(tried: Sequence[Alteration]) -> bool:
            apart = tensor.deviation_with(tried)
            if len(tried) == 1:
                left_with[tried[0]] = apart
            return apart <= limits.LIVE_FLOAT64 and control.deviation_with(tried) <= limits.LIVE_FLOAT64

        def trials() -> Iterator[Sequence[Alteration]]:
            alike = {group[0]: group for group in _alike(every)}
            for each in every:
                # A mistake that is made in all calls of a function is as frequent as one in a single call.
                yield from [alike[each]] if each in alike else []
                yield [each]
            own = ((number, call, _at(call)) for number, call in enumerate(calls) if call["in_loss"])
            numbers = _by_numbers(own, tensor.deviation_with, limits.SECONDS_OF_TRIALS)
            numbers = [replace(each, text=f"loss: {each.text}") for each in numbers]
            # A number that nobody would write stands for something else.
            yield from [numbers] if numbers and numbers[0].is_written else []
            yield from itertools.islice(_two(every, left_with), limits.PAIRS_TRIED)
            yield from [numbers] if numbers else []

        for number, tried in enumerate(trials()):
            if number and time.monotonic() - began > 2 * limits.SECONDS_OF_TRIALS:
                break
            if agrees(tried):
                found = _needed(tried, agrees)
                if len({_kind(each) for each in found}) == 1:
                    return [_attributed(found, tensor)]
                return [_attributed([each], tensor, len(found) - 1) for each in found]
        return []

    def _candidates(self, side: str, tensor: DeviatingTensor, training: bool) -> Iterator[Alteration]:
        """What can be tried: of the calls before the place the nearest first."""
        for number, call, where in self._calls(side, tensor, training):
            for way, text in call["ways"].items():
                yield Alteration(side, number, way, call["name"], f"{call['name']}{where} {text}")

    def _calls(
        self, side: str, tensor: DeviatingTensor, training: bool
    ) -> Iterator[tuple[int, dict[str, Any], str]]:
        """Calls that can be made otherwise, the nearest first: the number of each, what is known of it, and where it is."""
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
            if not after and (side, number) not in self._made:
                behind = f" behind {taps[place - 1]}" if place and side == "torch" else ""
                yield number, call, behind + _at(call)

    def lines(self, tensor: DeviatingTensor, training: bool) -> tuple[str, ...]:
        """The lines of torch's code that compute what deviates, from the places before it that agree, in their order."""
        bench, segment = self._bench, tensor.segment
        calls, taps = bench.torch.alterations(bench.inputs[1], training=training)
        places = {tap: place for place, tap in enumerate(taps)}
        end = len(taps) if segment.point is None else places.get(segment.point.torch, len(taps))
        before = [p.torch for p in segment.before if places.get(p.torch, end) < end]
        begin = max((places[tap] + 1 for tap in before), default=0)
        inside = "" if segment.point is None else segment.point.torch_layer.rpartition(".")[0]
        # Of what one module calls side by side, as queries and keys, each may be where it begins.
        beside = [places[tap] + 1 for tap in before if inside and tap.startswith(f"{inside}.")]
        begin = min([begin, *beside])
        found = (call["line"] for call in calls if begin <= call["place"] <= end and call["line"])
        return tuple(dict.fromkeys(found))


def _at(call: dict[str, Any]) -> str:
    """Where in the user's code a call is, for a sentence."""
    return f" ({call['line']})" if call["line"] else ""


def _until(ends: float, tried: Iterable[Sequence[Alteration]]) -> Iterator[Sequence[Alteration]]:
    """What is tried until a time of the monotonic clock."""
    return itertools.takewhile(lambda each: time.monotonic() < ends, tried)


def _by_numbers(
    calls: Iterable[tuple[int, dict[str, Any], str]],
    deviation: Callable[[Sequence[Alteration]], float],
    seconds: float,
) -> list[Alteration]:
    """Calls of torch's in which another number makes a deviation vanish, one or all that have the same number; [] where none does.

    Args:
        calls: as `Structure._calls` gives them.
        deviation: with some alterations.
        seconds: that this may take.
    """
    groups: dict[tuple[str, str, float], list[tuple[int, str]]] = {}
    for call, facts, where in calls:
        for which, value in facts["constants"].items():
            groups.setdefault((facts["name"], which, value), []).append((call, where))
    every = [_Constant(*key, (member,)) for key, members in groups.items() for member in members]
    every += [_Constant(*key, tuple(members)) for key, members in groups.items() if len(members) > 1]
    began = time.monotonic()
    for constant in every[: limits.CONSTANTS_TRIED]:
        if time.monotonic() - began > seconds:
            break
        found = fitted(partial(_deviation_at, constant, deviation), constant.value)
        if found is not None:
            return constant.altered(*found)
    return []


@dataclass(frozen=True)
class _Constant:
    """A number of some calls of a function: name, of the function; which of its numbers; members: the calls and where they are."""

    name: str
    which: str
    value: float
    members: tuple[tuple[int, str], ...]

    def altered(self, number: float, is_written: bool = True) -> list[Alteration]:
        """The calls with another number; is_written: whether a person would write that."""
        way = f"{CONSTANT}{self.which}={number!r}"
        right = "is right" if is_written else "makes it agree, though nobody would write that"
        text = f"has {self.value:g} as {self.which}, and {number:.9g} {right}"
        return [
            Alteration("torch", call, way, self.name, f"{self.name}{where} {text}", is_written)
            for call, where in self.members
        ]


def _deviation_at(
    constant: _Constant, deviation: Callable[[Sequence[Alteration]], float], number: float
) -> float:
    return deviation(constant.altered(number))


def _needed(found: Sequence[Alteration], agrees: Callable[[Sequence[Alteration]], bool]) -> list[Alteration]:
    """Those of some alterations without which the sides would not agree."""
    kept = list(found)
    for each in found:
        fewer = [other for other in kept if other is not each]
        if fewer and agrees(fewer):
            kept = fewer
    return kept


def _alike(candidates: Sequence[Alteration]) -> Iterator[Sequence[Alteration]]:
    """The same made otherwise in all calls of a function: code of a block is called by each of them."""
    groups: dict[tuple[str, str | None], list[Alteration]] = {}
    for each in candidates:
        groups.setdefault(_kind(each), []).append(each)
    return (group for group in groups.values() if len(group) > 1)


def _two(
    candidates: Sequence[Alteration], left_with: dict[Alteration, float]
) -> Iterator[Sequence[Alteration]]:
    """Two different calls made otherwise; first those that by themselves leave least."""
    best_first = sorted(candidates, key=lambda each: left_with.get(each, math.inf))
    return (pair for pair in itertools.combinations(best_first, 2) if pair[0].call != pair[1].call)


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
        f", and so in {more} more call{'s' if more > 1 else ''}" if more else ""
    )
    fix = f"change {these} in torch" if ours else "do the same in torch"
    point = tensor.segment.point
    way = (first.way or "").partition("=")[0]
    why = Explanation(
        f"structure:{first.name} {way.removeprefix(MANY).strip()}",
        text,
        "confirmed" if first.is_written else "likely",
        fix,
        evidence,
        defect=first.side,
        layers=("the outputs" if point is None else point.keras_layer,),
    )
    return Attribution(why, tuple(alterations))
