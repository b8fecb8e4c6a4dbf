"""A pair of the zoo put to the test: mapped automatically, given the same random weights, and both run.

The test process loads neither framework; one process of each holds the models, one pair at a time.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np

from parity.common.base.errors import ExternalModelError
from parity.common.external.lint.lint import Difference, lint
from parity.common.external.lint.settings import said
from parity.common.external.mapping.propose import propose
from parity.common.external.mapping.verification import refine
from parity.common.external.pairs.points import points_of
from parity.common.external.process.layouts import aligned, back
from parity.common.external.process.worker import ExternalWorker
from parity.common.parity.deviation import tensor_deviation
from parity.common.spec.external.mapping import LayerPair, Mapping
from parity.common.spec.external.outline import Outline, TensorInfo
from parity.common.spec.external.target import Target
from parity_tests.helpers import ROOT
from parity_tests.tables.zoo import CONSTANTS, LIMIT, Outcome
from parity_tests.zoo import PACKAGES, ZOO, Arrays, ZooPair

SEED = 8
# Of outputs, where an angle of some thousand periods has been rounded to float32.
_OF_FLOAT32_CONSTANTS = 1e-3
_CLEARLY = 10  # times smaller, and it was due to that


@contextlib.contextmanager
def zoo_workers(first: ZooPair = ZOO["MobileNetV3Small"]) -> Iterator[tuple[ExternalWorker, ExternalWorker]]:
    """A process of Keras's and one of torch's, which find the packages of the zoo; they hold `first`."""
    kept = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / PACKAGES), kept]))
    try:
        keras = ExternalWorker("tensorflow", first.keras, folder=ROOT)
        torch = ExternalWorker("torch", first.torch, folder=ROOT)
    finally:
        if kept is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = kept
    with keras, torch:
        yield keras, torch


def drawn(outline: Outline, random: np.random.Generator) -> Arrays:
    """Random numbers for every floating tensor, of a size that neither lets a signal die nor explode."""
    return {info.name: _draw(info, random) for info in outline.tensors if info.dtype.startswith("float")}


def _draw(info: TensorInfo, random: np.random.Generator) -> np.ndarray:
    values = random.normal(size=info.shape)
    if info.role in ("moving_variance", "variance"):
        return 0.5 + np.abs(values)
    if info.role in ("gamma", "scale"):
        return 1 + 0.1 * values
    if len(info.shape) < 2:
        return 0.1 * values
    if "embedding" in info.role:
        return values
    depthwise = info.role == "depthwise_kernel"
    fan_in = np.prod(info.shape[:-2] if depthwise else info.shape[:-1])
    return values * np.sqrt(2 / fan_in)


def run(pair: ZooPair, keras: ExternalWorker, torch: ExternalWorker) -> Outcome:
    """Put a pair to the test; `keras` and `torch` hold its models afterwards."""
    began = time.monotonic()
    random = np.random.default_rng(SEED)
    inputs = pair.inputs.draw(random)
    keras.hold(pair.keras)
    torch.hold(pair.torch)
    outlines = keras.outline(inputs[0]), torch.outline(inputs[1])
    mapping = refine(propose(*outlines), keras, torch, *inputs)
    outcome = counted(pair, mapping, outlines)
    fill(pair, mapping, outlines, keras, torch, random)
    outcome.deviation = deviation(pair, keras, torch, inputs)
    if outcome.deviation > LIMIT:
        _name(outcome, mapping, outlines, keras, torch, inputs)
    outcome.seconds = time.monotonic() - began
    return outcome


def counted(pair: ZooPair, mapping: Mapping, outlines: tuple[Outline, Outline]) -> Outcome:
    """How many tensors have a counterpart."""
    whole = [
        {info.name for info in outline.tensors if info.tied_to is None and info.dtype.startswith("float")}
        for outline in outlines
    ]
    both = [each for each in mapping.tensors if each.keras and each.torch]
    sure = [each for each in both if each.doubt is None]
    mapped = [{name for each in sure for name in getattr(each, side)} for side in ("keras", "torch")]
    doubtful = [each.label for each in both if each.doubt is not None]
    known = [{name for each in both for name in getattr(each, side)} for side in ("keras", "torch")]
    return Outcome(
        pair,
        tensors=(len(whole[0]), len(whole[1])),
        mapped=(len(whole[0] & mapped[0]), len(whole[1] & mapped[1])),
        doubtful=tuple(doubtful),
        lacking=tuple(sorted(name for side in (0, 1) for name in whole[side] - known[side])),
        mapping=mapping,
    )


def fill(
    pair: ZooPair,
    mapping: Mapping,
    outlines: tuple[Outline, Outline],
    keras: ExternalWorker,
    torch: ExternalWorker,
    random: np.random.Generator,
) -> None:
    """The same random numbers in both, through the mapping; what only one side has stays as it was built."""
    values = drawn(outlines[0], random)
    shared = {name for each in mapping.tensors if each.keras and each.torch for name in each.keras}
    given = {name: value for name, value in values.items() if name in shared}
    keras.write(given)
    torch.write(mapping.to_torch(given, partial=True))
    shapes = {info.name: info.shape for info in outlines[1].tensors}
    torch.write({name: np.zeros(shapes[name]) for name in pair.zeros})


def deviation(
    pair: ZooPair, keras: ExternalWorker, torch: ExternalWorker, inputs: tuple[Arrays, Arrays]
) -> float:
    """Of the outputs in inference, the largest over the largest number in them."""
    ours = keras.forward(inputs[0], taps=False).outputs
    theirs = torch.forward(inputs[1], taps=False).outputs
    found = []
    for left, right in pair.outputs:
        alignment = aligned(ours[left], theirs[right])
        found.append(math.inf if alignment is None else tensor_deviation(ours[left], alignment.array))
    return max(found)


def _name(
    outcome: Outcome,
    mapping: Mapping,
    outlines: tuple[Outline, Outline],
    keras: ExternalWorker,
    torch: ExternalWorker,
    inputs: tuple[Arrays, Arrays],
) -> None:
    """Say what differs, by experiment: what is named is taken away, and the rest is looked at again."""
    pair = outcome.pair
    outcome.first = first_that_parts(mapping, outlines, keras, torch, inputs)
    named = []
    keras.exact_constants(True)
    left = deviation(pair, keras, torch, inputs)
    if left <= LIMIT or left < outcome.deviation / _CLEARLY:
        named.append(CONSTANTS[0])
    if LIMIT < left <= _OF_FLOAT32_CONSTANTS:
        before, left = left, _built(pair.without or pair.torch, True, outcome, outlines, keras, torch, inputs)
        if left < before / _CLEARLY:
            named.append(CONSTANTS[1])
            if pair.without:
                named.append(pair.besides)
        else:
            left = _built(pair.torch, False, outcome, outlines, keras, torch, inputs)
    if left > LIMIT:
        groups: dict[str, list[Difference]] = {}
        for each in lint(*outlines, _owners(mapping, outlines)):
            if each.changes == "forward":
                groups.setdefault(_text(each), []).append(each)
        before, (left, needed) = left, _equalled(groups, pair, keras, torch, inputs)
        if left < before / _CLEARLY:
            named += needed
    keras.exact_constants(False)
    outcome.equalled, outcome.named = left, tuple(named)


def _built(
    target: Target,
    exact: bool,
    outcome: Outcome,
    outlines: tuple[Outline, Outline],
    keras: ExternalWorker,
    torch: ExternalWorker,
    inputs: tuple[Arrays, Arrays],
) -> float:
    """The deviation with torch's model built again, with float64 also where its code asks for float32 then, or without."""
    torch.hold(target, exact=exact)
    torch.outline(inputs[1])
    assert outcome.mapping is not None
    fill(outcome.pair, outcome.mapping, outlines, keras, torch, np.random.default_rng(SEED))
    return deviation(outcome.pair, keras, torch, inputs)


def _text(found: Difference) -> str:
    row = f" (row {found.row})" if found.row is not None else ""
    return f"{found.kind}.{found.setting} {said(found.keras_value)} against {said(found.torch_value)}{row}"


def _owners(mapping: Mapping, outlines: tuple[Outline, Outline]) -> list[LayerPair]:
    """Layers that hold each other's tensors, and no others."""
    layers = [{info.name: info.layer for info in outline.tensors} for outline in outlines]
    held: dict[str, set[str]] = {}
    for each in mapping.tensors:
        for name in each.keras:
            held.setdefault(layers[0][name], set()).update(layers[1][other] for other in each.torch)
    counts = Counter(other for others in held.values() for other in others)
    return [
        LayerPair(keras=layer, torch=next(iter(others)))
        for layer, others in held.items()
        if len(others) == 1 and counts[next(iter(others))] == 1
    ]


def _equalled(
    groups: dict[str, list[Difference]],
    pair: ZooPair,
    keras: ExternalWorker,
    torch: ExternalWorker,
    inputs: tuple[Arrays, Arrays],
) -> tuple[float, list[str]]:
    """The deviation once differences are taken away, and which of them it takes, with their number of layers."""
    undo = {text: _taken_away(found, keras, torch) for text, found in groups.items()}
    undo = {text: changes for text, changes in undo.items() if changes}
    left = deviation(pair, keras, torch, inputs)
    # What makes it worse is no difference, and what changes nothing need not be named.
    for harmful in (True, False):
        for text in list(undo):
            changes = [(*change, change[0].set(*change[1:])) for change in undo[text]]
            without = deviation(pair, keras, torch, inputs)
            if without < left / _CLEARLY or (not harmful and without <= LIMIT):
                left = without
                del undo[text]
            else:
                for side, layer, setting, _, kept in changes:
                    side.set(layer, setting, kept)
    return left, [
        f"{text}, {len(changes)} layers" if len(changes) > 1 else text for text, changes in undo.items()
    ]


def _taken_away(
    found: list[Difference], keras: ExternalWorker, torch: ExternalWorker
) -> list[tuple[ExternalWorker, str, str, object]]:
    """Give one side the other's settings, as far as that can be done to live models; what was there before."""
    changes: list[tuple[ExternalWorker, str, str, object]] = []
    for each in found:
        for side, layer, value in (
            (torch, each.torch, each.keras_value),
            (keras, each.keras, each.torch_value),
        ):
            if layer is not None:
                with contextlib.suppress(ExternalModelError):
                    changes.append((side, layer, each.setting, side.set(layer, each.setting, value)))
                    break
    return changes


def first_that_parts(
    mapping: Mapping,
    outlines: tuple[Outline, Outline],
    keras: ExternalWorker,
    torch: ExternalWorker,
    inputs: tuple[Arrays, Arrays],
) -> str:
    """The first layer of torch's that deviates though all before it are given Keras's numbers; '' where none does."""
    points = [point for point in points_of(*outlines, mapping) if not point.linear]
    due = keras.forward(inputs[0], taps=[point.keras for point in points]).activations
    own = torch.forward(inputs[1], taps=[point.torch for point in points]).activations
    inject = {}
    for point in points:
        alignment = aligned(due[point.keras], own[point.torch])
        if alignment is not None:  # else there is an axis of one more on one side
            inject[point.torch] = back(due[point.keras], alignment.how)
    injected = torch.forward(inputs[1], taps=list(inject), inject=inject).activations
    for name in inject:
        far = tensor_deviation(inject[name], injected[name])
        if far > LIMIT:
            return f"{name}: {far:.1e}"
    return ""
