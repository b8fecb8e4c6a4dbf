"""Why a layer of torch's deviates though it was given what Keras's was: each suspected cause is tried on the live models."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from parity.common.base.errors import ExternalModelError
from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Confidence, Explanation
from parity.common.external.lint.lint import Difference
from parity.common.external.lint.settings import PASTE
from parity.common.external.pairs.bench import Bench
from parity.common.external.pairs.places import Substitution
from parity.common.external.pairs.points import Point, Segment, paired_layers
from parity.common.external.process.pass_result import Arrays
from parity.common.spec.external.rules import parse_rule

T = TypeVar("T")


class Reversible(Protocol):
    """What can be changed on the live models, and back."""

    def make(self, bench: Bench) -> Reversible:
        """Change it, and return what takes it back; raise ExternalModelError where it cannot be changed."""


@dataclass(frozen=True)
class Change:
    """A setting of a live layer that is tried with another value. side: whose."""

    side: str
    layer: str
    setting: str
    value: Any

    def make(self, bench: Bench) -> Change:
        """Set it, and return the change that takes it back; raise ExternalModelError where it cannot be set."""
        worker = bench.keras if self.side == "keras" else bench.torch
        return replace(self, value=worker.set(self.layer, self.setting, self.value))


@dataclass(frozen=True)
class Attribution:
    """An explanation, and the changes of live settings that make good what it names; by: the one operation that they put right."""

    explanation: Explanation
    changes: tuple[Reversible, ...] = ()
    by: Substitution | None = None


@dataclass(frozen=True)
class DeviatingTensor:
    """A tensor that deviates by itself.

    segment: what computes it. suspects: differences of settings. measure: its deviation now. deviation: as found.
    """

    bench: Bench
    segment: Segment
    suspects: Sequence[Difference]
    measure: Callable[[], float]
    deviation: float

    def deviation_with(self, changes: Sequence[Reversible] = ()) -> float:
        """Return its deviation with changes; infinite where they cannot be made, or the pass fails."""
        return measured_with(self.bench, changes, self.measure, math.inf)

    def by_experiment(self, deviation: float, how: str = "") -> str:
        """Return the evidence of an experiment after which it has another deviation."""
        return f"by experiment: with it the deviation is {deviation:.2g} instead of {self.deviation:.2g}{how}"


@contextmanager
def made(bench: Bench, changes: Sequence[Reversible]) -> Iterator[None]:
    """Make changes, and take them back at the end."""
    with ExitStack() as stack:
        for change in changes:
            stack.callback(change.make(bench).make, bench)
        yield


def measured_with(bench: Bench, changes: Sequence[Reversible], measure: Callable[[], T], failed: T) -> T:
    """What is measured with changes; `failed` where they cannot be made, or the pass fails."""
    try:
        with made(bench, changes):
            return measure()
    except ExternalModelError:
        return failed


def by_setting(suspect: Difference, confidence: Confidence, evidence: str) -> Explanation:
    """Explain a deviation by a difference of settings."""
    layers = (suspect.where,) if suspect.keras or suspect.torch else ()
    return Explanation(
        f"setting:{suspect.setting}",
        suspect.text,
        confidence,
        suspect.fix,
        evidence,
        defect=suspect.defect,
        layers=layers,
        paste=next((code for name, code in PASTE.items() if name in suspect.fix), ""),
    )


def explained(tensor: DeviatingTensor) -> list[Attribution]:
    """The causes of a deviation, all that it takes; none where no known cause fits."""
    ways = (_by_settings, _by_mode, _by_joined_batches, _by_batch_first, _by_weights)
    return next(filter(None, (way(tensor) for way in ways)), [])


def ways_of(suspect: Difference) -> list[Change]:
    """Torch's layer as Keras's is, else Keras's as torch's is; of a function that one side lacks, none on the other."""
    sides = {"torch": suspect.torch, "keras": suspect.keras}
    setting, values = suspect.setting, {"torch": suspect.keras_value, "keras": suspect.torch_value}
    if setting == "counterpart":
        setting, values = "function", {"torch": "linear", "keras": "linear"}
    for side, padded in (("keras", suspect.keras_padded), ("torch", suspect.torch_padded)):
        due = values.get(side)
        if padded and isinstance(due, tuple):
            # On top of what is padded before: where that is too much, the layer cuts off.
            values[side] = tuple(wanted - added for wanted, added in zip(due, padded, strict=True))
    return [Change(side, layer, setting, values[side]) for side, layer in sides.items() if layer]


def _by_settings(tensor: DeviatingTensor) -> list[Attribution]:
    here = [suspect for suspect in tensor.suspects if tensor.segment.holds(suspect.keras, suspect.torch)]
    elsewhere = [suspect for suspect in tensor.suspects if suspect not in here]
    # What one side cannot be set to, because it is a layer of its own there, the other may.
    for tried, order in ((here, 1), (here, -1), (elsewhere, 1)):
        ways, deviation = _needed(tensor, [ways_of(suspect)[::order] for suspect in tried])
        # With a change after which a model cannot be run, nothing behind it could be compared.
        whole = replace(tensor, measure=lambda: _passes(tensor.bench))
        if ways and whole.deviation_with(list(ways.values())) == 0:
            return [_set_alike(tensor, tried[number], way, deviation) for number, way in ways.items()]
    return []


def _passes(bench: Bench) -> float:
    """0 where both models can be run, forward and backward."""
    bench.reference(True)
    bench.torch_pass(True)
    return 0.0


def _set_alike(tensor: DeviatingTensor, suspect: Difference, way: Change, deviation: float) -> Attribution:
    one, other = ("torch", "Keras") if way.side == "torch" else ("Keras", "torch")
    evidence = tensor.by_experiment(deviation, f": {other}'s value set in {one}'s {way.layer}")
    return Attribution(by_setting(suspect, "confirmed", evidence), (way,))


def _needed(
    tensor: DeviatingTensor, candidates: Sequence[Sequence[Change]]
) -> tuple[dict[int, Change], float]:
    """Which of several candidates make a deviation vanish: all that it stays without, by number, and how far it is then.

    Of each candidate the first way that can be made is taken. There are none where not even all of them together do.
    """
    limit = limits.LIVE_FLOAT64
    settable = replace(tensor, measure=lambda: 0.0)
    usable = {
        number: way
        for number, ways in enumerate(candidates)
        if (way := next((way for way in ways if settable.deviation_with([way]) == 0), None))
    }
    together = tensor.deviation_with(list(usable.values())) if usable else float("inf")
    if together <= limit:
        needs = {}
        for number, way in usable.items():
            others = [each for other, each in usable.items() if other != number]
            if tensor.deviation_with(others) > limit:
                needs[number] = way
        # Where each by itself is enough, the first is.
        return needs or dict([next(iter(usable.items()))]), together
    for number, way in usable.items():
        alone = tensor.deviation_with([way])
        if alone <= limit:
            return {number: way}, alone
    return {}, together


@contextmanager
def _rewritten(bench: Bench, tensors: Arrays) -> Iterator[None]:
    """Torch's model with other values of some tensors."""
    before = bench.torch.read()
    bench.torch.write(tensors)
    try:
        yield
    finally:
        bench.torch.write({name: before[name] for name in tensors})


MODE = "batch_norm_mode"


def _by_mode(tensor: DeviatingTensor) -> list[Attribution]:
    """A batch norm that in training runs on moving statistics on one side, and on the batch's on the other."""
    point = tensor.segment.point
    if point is None:
        return []
    for side in ("torch", "keras"):
        way = Change(
            side, point.torch_layer if side == "torch" else point.keras_layer, "pass_mode", "inference"
        )
        deviation = tensor.deviation_with([way])
        if deviation <= limits.LIVE_FLOAT64:
            evidence = tensor.by_experiment(deviation, f": {way.layer} of {side} run in inference mode")
            return [Attribution(mode_cause(tensor.bench, side, point, evidence), (way,))]
    return []


def _by_joined_batches(tensor: DeviatingTensor) -> list[Attribution]:
    """Batch norms that one side calls once with what the other gives its own one after the other, so that their statistics are of all of it."""
    bench = tensor.bench
    calls = [
        {info.path: info.calls for info in outline.layers if info.kind == "batch_norm"}
        for outline in bench.outlines
    ]
    pairs = [(pair.keras, pair.torch) for pair in paired_layers(*bench.outlines, bench.mapping)]
    found = [pair for pair in pairs if all(map(dict.get, calls, pair)) and tensor.segment.holds(*pair)]
    counts = [(calls[0][ours], calls[1][theirs]) for ours, theirs in found]
    for side in (0, 1):
        names, others = ([pair[number] for pair in found] for number in (side, 1 - side))
        parts = {each[1 - side] // each[side] for each in counts}
        if len(parts) != 1 or parts <= {0, 1}:
            continue
        (count,) = parts
        name, other = (("Keras", "torch"), ("torch", "Keras"))[side]
        ways = [Change("torch" if side else "keras", layer, "pass_mode", count) for layer in names]
        deviation = tensor.deviation_with(ways)
        if deviation > limits.LIVE_FLOAT64:
            continue
        listed = ", ".join(names)
        text = (
            f"{name} calls {listed} once in training with {count} inputs joined along the batch, and normalises by the statistics of all"
            f" of it; {other} calls {', '.join(others)} {count} times, each by its own"
        )
        how = f": {listed} of {name} given the {count} parts of its batch one after the other"
        where = tuple(f"{ours} ({theirs} in torch)" for ours, theirs in found)
        fix = f"in torch: call the layers {'for each of these inputs' if side else 'once with these inputs joined'}"
        why = Explanation(
            "batch_norm_joined", text, "confirmed", fix, tensor.by_experiment(deviation, how), layers=where
        )
        return [Attribution(why, tuple(ways))]
    return []


# Layers of torch that take the first axis for time unless they are told.
_TIME_FIRST = ("lstm", "gru", "simple_rnn", "attention")


def _by_batch_first(tensor: DeviatingTensor) -> list[Attribution]:
    """A layer of torch that takes samples for steps."""
    layers = (info for info in tensor.bench.outlines[1].layers if info.path in tensor.segment.torch)
    for layer in (info.path for info in layers if info.kind in _TIME_FIRST):
        way = Change("torch", layer, "batch_first", True)
        deviation = tensor.deviation_with([way])
        if deviation <= limits.LIVE_FLOAT64:
            text = f"{layer} of torch takes the first axis for time and not for the samples: it has no batch_first=True"
            evidence = tensor.by_experiment(deviation, f": set in torch's {layer}")
            why = Explanation(
                "setting:batch_first",
                text,
                "confirmed",
                "in torch: batch_first=True",
                evidence,
                defect="batch_first",
                layers=(layer,),
            )
            return [Attribution(why, (way,))]
    return []


def mode_cause(bench: Bench, side: str, point: Point, evidence: str) -> Explanation:
    """Explain a batch norm of which `side` alone takes the batch's statistics in training."""
    ours, theirs = point.keras_layer, point.torch_layer
    frozen = not any(info.trainable for info in bench.outlines[0].tensors if info.layer == ours)
    if side == "torch":
        why = ", being frozen," if frozen else ""
        text = (
            f"in training {ours} of Keras{why} keeps its moving statistics and normalises by them, and {theirs} of torch"
            " normalises by the batch's and updates its own"
        )
        fix = f"keep {theirs} in eval() in torch: call it after each train(), or override train()"
    else:
        text = (
            f"in training {theirs} of torch keeps its running statistics and normalises by them, as in eval(), and {ours}"
            " of Keras normalises by the batch's and updates its own"
        )
        fix = f"leave {theirs} in train() in torch, or set trainable = False in Keras"
    layers = (f"{ours} ({theirs} in torch)",)
    return Explanation(MODE, text, "confirmed", fix, evidence, defect=side, layers=layers)


def _by_weights(tensor: DeviatingTensor) -> list[Attribution]:
    """Torch's weights of the layer in another order or place than they should be."""
    bench, point = tensor.bench, tensor.segment.point
    if point is None:
        return []
    state = bench.torch.read()
    for info in bench.outlines[1].tensors:
        name = info.name
        if info.tied_to is not None or info.layer != point.torch_layer or name not in state:
            continue
        for cause, text, value in _rearranged(bench, name, state):
            if value.shape != state[name].shape or np.array_equal(value, state[name]):
                continue
            with _rewritten(bench, {name: value}):
                deviation = tensor.deviation_with()
            if deviation <= limits.LIVE_FLOAT64:
                pair = next((p for p in bench.mapping.tensors if name in p.torch), None)
                fix = "correct its line in mapping.yaml" + (f": {pair.label}" if pair is not None else "")
                evidence = tensor.by_experiment(deviation)
                return [Attribution(Explanation(cause, text, "confirmed", fix, evidence))]
    return []


def _rearranged(bench: Bench, name: str, state: Arrays) -> Iterator[tuple[str, str, Any]]:
    """(cause, text, values) of what a tensor may be meant to be."""
    value = state[name]
    wrong = "its rule in the mapping is the wrong one"
    if value.ndim == 2 and value.shape[0] == value.shape[1]:
        yield "weights_transposed", f"{name} is transposed: {wrong}", value.T
    if value.ndim == 4 and value.shape[2] == value.shape[3]:
        yield "weights_transposed", f"{name} has height and width exchanged: {wrong}", value.swapaxes(2, 3)
    yield from _other_rules(bench, name)
    alike = [other for other, array in state.items() if other != name and array.shape == value.shape]
    for other in alike[: limits.SWAPS_TRIED]:
        yield "weights_swapped", f"{name} has the values that {other} should have", state[other]


def _other_rules(bench: Bench, name: str) -> Iterator[tuple[str, str, Any]]:
    """The Keras tensor by the other rules that a dense kernel may need."""
    pair = next((pair for pair in bench.mapping.tensors if pair.torch == (name,)), None)
    if pair is None or len(pair.keras) != 1:
        return
    kernel = bench.keras.read()[pair.keras[0]]
    rules = ["transpose", "same"]
    for info in bench.outlines[0].layers:
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
