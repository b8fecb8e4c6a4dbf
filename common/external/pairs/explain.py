"""Why a layer of torch's deviates though it was given what Keras's was: suspects, each tried on the live models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from parity.common.base.errors import ExternalModelError
from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Explanation
from parity.common.external.lint.lint import Difference
from parity.common.external.lint.settings import ROWS, said
from parity.common.external.pairs.bench import Arrays, Bench
from parity.common.external.pairs.experiments import (
    Change,
    Measure,
    deviation_with,
    needed,
    rewritten,
    ways_of,
)
from parity.common.external.pairs.points import Segment
from parity.common.external.process.layouts import aligned, back
from parity.common.spec.external.rules import parse_rule

_BACK = "by experiment: with it the deviation is"


@dataclass(frozen=True)
class Suspect:
    """A difference of settings between two layers, or between a function and a layer.

    keras, torch: their paths, None where a side has no such layer. row: of DIFFERENCES, None where it has none.
    fix: one line. changes: what it changes: forward, backward, update, training mode, initial values, layout.
    """

    keras: str | None
    torch: str | None
    setting: str
    ours: Any
    theirs: Any
    row: int | None
    fix: str
    changes: str = "forward"

    @classmethod
    def of(cls, difference: Difference) -> Suspect:
        """Of what lint says; the fix is for the port, torch's."""
        return cls(
            difference.keras,
            difference.torch,
            difference.setting,
            difference.keras_value,
            difference.torch_value,
            difference.row,
            f"in torch: {difference.fix_torch}",
            difference.changes,
        )

    @property
    def where(self) -> str:
        """The layer, by both names where these differ."""
        if self.keras and self.torch and self.keras != self.torch:
            return f"{self.keras} ({self.torch} in torch)"
        return self.keras or self.torch or ("the optimizer" if self.changes == "update" else "the model")

    @property
    def text(self) -> str:
        """What differs, in one sentence."""
        row = "" if self.row is None else f" (row {self.row}: {ROWS.get(self.row, 'DIFFERENCES')})"
        if self.setting == "counterpart":
            side, other = ("Keras", "torch") if self.ours is not None else ("torch", "Keras")
            return f"{side} has {self.where} ({said(self.ours or self.theirs)}), and {other} has none{row}"
        return f"{self.setting} of {self.where} is {said(self.ours)} in Keras and {said(self.theirs)} in torch{row}"


@dataclass(frozen=True)
class DeviatingTensor:
    """A tensor that deviates by itself.

    segment: what computes it. measure: its deviation now. deviation: as found. measure_injected: its deviation with
    something else in place of what some torch layers give, by tap; None where that cannot be. reference: Keras's
    activations by tap. inputs: torch's, as it is.
    """

    bench: Bench
    segment: Segment
    suspects: Sequence[Suspect]
    measure: Measure
    deviation: float
    measure_injected: Callable[[Arrays], float | None] = field(default=lambda injections: None)
    reference: Arrays = field(default_factory=dict)
    inputs: Arrays = field(default_factory=dict)


@dataclass(frozen=True)
class Attribution:
    """An explanation, and the changes of live settings that make good what it names."""

    explanation: Explanation
    changes: tuple[Change, ...] = ()


def likely(suspect: Suspect) -> Explanation:
    """Where nothing could be tried: a difference of settings where the two diverge."""
    return Explanation(
        f"setting:{suspect.setting}", suspect.text, "likely", suspect.fix, "it is where the two diverge"
    )


def explained(case: DeviatingTensor) -> list[Attribution]:
    """The causes of a case, all that it takes; none where no known cause fits."""
    for explain in (_by_settings, _by_weights, _by_connections):
        found = explain(case)
        if found:
            return found
    return []


def _by_settings(case: DeviatingTensor) -> list[Attribution]:
    here = [suspect for suspect in case.suspects if case.segment.holds(suspect.keras, suspect.torch)]
    for tried in (here, [suspect for suspect in case.suspects if suspect not in here]):
        candidates = [ways_of(s.keras, s.torch, s.setting, s.ours, s.theirs) for s in tried]
        result = needed(case.bench, candidates, case.measure, limits.LIVE_FLOAT64)
        if result is None:
            continue
        numbers, deviation = result
        return [_confirmed(tried[number], candidates[number], case, deviation) for number in numbers]
    return []


def _confirmed(
    suspect: Suspect, ways: Sequence[Change], case: DeviatingTensor, deviation: float
) -> Attribution:
    way = next(way for way in ways if deviation_with(case.bench, [way], lambda: 0.0) is not None)
    other = "Keras's" if way.side == "torch" else "torch's"
    evidence = f"{_BACK} {deviation:.2g} instead of {case.deviation:.2g}: {other} value set in {way.layer}"
    explanation = Explanation(f"setting:{suspect.setting}", suspect.text, "confirmed", suspect.fix, evidence)
    return Attribution(explanation, (way,))


def _by_weights(case: DeviatingTensor) -> list[Attribution]:
    """Torch's weights of the layer in another order or place than they should be."""
    if case.segment.point is None:
        return []
    layer = case.segment.point.torch_layer
    state = case.bench.torch.read()
    tensors = {info.name: info for info in case.bench.outlines[1].tensors if info.tied_to is None}
    for name, info in tensors.items():
        if info.layer != layer or name not in state:
            continue
        for cause, text, value in _rearranged(case, name, state):
            if value.shape != state[name].shape or np.array_equal(value, state[name]):
                continue
            with rewritten(case.bench, {name: value}):
                deviation = _safely(case.measure)
            if deviation <= limits.LIVE_FLOAT64:
                pair = next((p for p in case.bench.mapping.tensors if name in p.torch), None)
                fix = "correct its line in mapping.yaml" + (f": {pair.label}" if pair is not None else "")
                evidence = f"{_BACK} {deviation:.2g} instead of {case.deviation:.2g}"
                return [Attribution(Explanation(cause, text, "confirmed", fix, evidence))]
    return []


def _rearranged(case: DeviatingTensor, name: str, state: Arrays) -> Iterator[tuple[str, str, Any]]:
    """(cause, text, values) of what a tensor may be meant to be."""
    value = state[name]
    if value.ndim == 2 and value.shape[0] == value.shape[1]:
        yield "weights_transposed", f"{name} is transposed: its rule in the mapping is the wrong one", value.T
    if value.ndim == 4 and value.shape[2] == value.shape[3]:
        yield (
            "weights_transposed",
            f"{name} has height and width exchanged: its rule in the mapping is the wrong one",
            value.swapaxes(2, 3),
        )
    yield from _other_rules(case, name)
    alike = [other for other, array in state.items() if other != name and array.shape == value.shape]
    for other in alike[: limits.SWAPS_TRIED]:
        yield "weights_swapped", f"{name} has the values that {other} should have", state[other]


def _other_rules(case: DeviatingTensor, name: str) -> Iterator[tuple[str, str, Any]]:
    """The Keras tensor by the other rules that a dense kernel may need."""
    pair = next((pair for pair in case.bench.mapping.tensors if pair.torch == (name,)), None)
    if pair is None or len(pair.keras) != 1:
        return
    kernel = case.bench.keras.read()[pair.keras[0]]
    rules = ["transpose", "same"]
    for info in case.bench.outlines[0].layers:
        given = info.inputs[0][1:] if info.inputs else ()
        sizes = [size for size in given if size is not None]
        if info.kind == "flatten" and len(sizes) > 1 and np.prod(sizes) == kernel.shape[0]:
            rules.append(f"flatten({','.join(map(str, sizes))})")
    for rule in rules:
        if rule == pair.rule or kernel.ndim != 2:
            continue
        try:
            (value,) = parse_rule(rule).to_torch([kernel], 1)
        except ExternalModelError:
            continue
        yield "weights_permuted", f"{name} is mapped by {pair.rule!r}, and {rule!r} is right", value


def _by_connections(case: DeviatingTensor) -> list[Attribution]:
    """A layer of one side that the other leaves out: a connection, a function, a normalisation."""
    ours, theirs = case.segment.unpaired
    kinds = {info.path: info.kind or info.type for outline in case.bench.outlines for info in outline.layers}
    for tap in ours:
        for point in reversed(case.segment.before):
            deviation = _injected_deviation(case, point.torch, case.reference.get(tap))
            if deviation is not None and deviation <= limits.LIVE_FLOAT64:
                layer = tap.partition("#")[0]
                what = f"{layer} ({kinds.get(layer, 'a layer')})"
                text = f"torch's model leaves out what {what} of Keras's does"
                evidence = (
                    f"{_BACK} {deviation:.2g} instead of {case.deviation:.2g}: the output of {layer} in place of that"
                    f" of {point.torch}"
                )
                fix = f"do behind {point.torch} in torch what {what} does"
                return [Attribution(Explanation("left_out", text, "confirmed", fix, evidence))]
    for tap in theirs:
        for point in reversed(case.segment.before):
            deviation = _injected_deviation(case, tap, case.reference.get(point.keras), like=point.torch)
            if deviation is not None and deviation <= limits.LIVE_FLOAT64:
                layer = tap.partition("#")[0]
                what = f"{layer} ({kinds.get(layer, 'a layer')})"
                text = f"torch's model has {what}, of which Keras's has nothing"
                evidence = f"{_BACK} {deviation:.2g} instead of {case.deviation:.2g}: {layer} passed over"
                return [
                    Attribution(
                        Explanation("added", text, "confirmed", f"take {layer} out of torch", evidence)
                    )
                ]
    return []


def _injected_deviation(case: DeviatingTensor, tap: str, value: Any, like: str | None = None) -> float | None:
    """The deviation with a Keras activation in place of what a torch layer gives; None where that cannot be."""
    own = case.inputs.get(like or tap)
    if value is None or own is None:
        return None
    alignment = aligned(value, own)
    return None if alignment is None else case.measure_injected({tap: back(value, alignment.how)})


def _safely(measure: Measure) -> float:
    try:
        return measure()
    except ExternalModelError:
        return float("inf")
