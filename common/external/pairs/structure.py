"""Structural causes of a deviation: from where on torch computes something else than Keras, of tensors that both have.

Both passes are recorded, operation by operation. Between a place that deviates and the tensors before it that agree, one of
torch's operations is sought that makes the place agree once it gives what an operation of Keras's gives. What both compute there, of
the same tensors, are two expressions, and where these differ is the cause.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from parity.common.diagnosis import limits
from parity.common.external.pairs.bench import Bench, compared
from parity.common.external.pairs.explain import Attribution, DeviatingTensor, made
from parity.common.external.pairs.places import Place, Replacement, Substitution, found_again, recorded
from parity.common.external.pairs.points import Point
from parity.common.external.pairs.varied_weights import other_weights
from parity.common.external.pairs.view import View


def structural_causes(
    tensor: DeviatingTensor,
    around: DeviatingTensor,
    place: Place,
    keeps: Callable[[Sequence[Replacement]], bool],
) -> list[Attribution]:
    """Return what makes a deviation in a forward pass vanish, an attribution for each difference; none where nothing does.

    Args:
        tensor: what deviates. around: the same, measured by what torch makes of it. place: the same, in numbers.
        keeps: whether all that agreed before does so with changes, too; else they are no cause.
    """
    view = View(tensor.bench, place)
    point = tensor.segment.point
    layers = ("the outputs" if point is None else point.keras_layer,)
    tried = itertools.chain(view.rearranged(), view.trials())
    for _, group in itertools.groupby(tried, key=lambda each: (each.torch_result, each.keras_result)):
        # Where what follows agrees, so does the order of elements; of two defects, one by the other's place, that does not.
        found: tuple[Substitution, Replacement, float] | None = None
        for substitution in group:
            replacement = view.replacement(substitution)
            if replacement is None:
                continue
            follows = around.deviation_with([replacement]) <= limits.LIVE_FLOAT64
            deviation = 0.0 if follows else tensor.deviation_with([replacement])
            if (follows or found is None) and deviation <= limits.LIVE_FLOAT64 and keeps([replacement]):
                found = substitution, replacement, deviation
                if follows:
                    break
        if found is not None:
            substitution, replacement, deviation = found
            if place.training:
                replacement = _in_inference_too(tensor.bench, place, substitution, replacement)
            holds = _holds_with_other_weights(tensor.bench, place, point, substitution)
            view.record_again()
            evidence = tensor.by_experiment(
                deviation,
                ": all that is used there agrees, and with what Keras computes in its place so does what follows"
                + ("; with other weights, too" if holds else ""),
            )
            return view.attributed(substitution, replacement, evidence, layers, holds is True)
    if tensor.deviation == math.inf and view.has_ends:
        return view.of_shapes(tensor, layers)
    return []


def causes_of_loss(bench: Bench, places: Sequence[tuple[Place, Callable[[], float]]]) -> list[Attribution]:
    """Return what makes two losses of the users' own one number; none where nothing does.

    Args:
        places: the losses, and how far the two numbers are apart now; then the same with other targets, which must agree by the
            same operation of Keras's. Without such what is found is only likely.
    """
    (place, deviation), *others = places
    view, was = View(bench, place), deviation()

    def with_change(change: Replacement, measure: Callable[[], float]) -> float:
        with made(bench, [change]):
            return measure()

    def holds(substitution: Substitution, moved: Place, measure: Callable[[], float]) -> bool:
        value = found_again(recorded(bench, 0, moved), substitution)
        view.record_again()
        other = None if value is None else substitution.replacement(value, training=True)
        return other is not None and with_change(other, measure) <= limits.LIVE_FLOAT64

    for substitution in view.trials():
        replacement = view.replacement(substitution)
        apart = math.inf if replacement is None else with_change(replacement, deviation)
        if apart > limits.LIVE_FLOAT64 or not all(holds(substitution, *other) for other in others):
            continue
        evidence = (
            f"by experiment: the losses differ by {was:.2g}, and with what Keras computes in its place by {apart:.2g}"
            + ("; with other targets, too" if others else "")
        )

        def agrees(change: Replacement) -> bool:
            return with_change(change, deviation) <= limits.LIVE_FLOAT64

        return view.attributed(substitution, None, evidence, ("loss",), bool(others), agrees)
    return []


def lines_of(bench: Bench, place: Place) -> tuple[str, ...]:
    """The lines of torch's code that compute what deviates, from tensors that agree, in their order."""
    return tuple(dict.fromkeys(each.line for each in View(bench, place).torch_operations if each.line))


def _in_inference_too(
    bench: Bench, place: Place, substitution: Substitution, replacement: Replacement
) -> Replacement:
    """The same replacement with what is due in inference, where Keras does it there, too."""
    value = found_again(recorded(bench, 0, replace(place, training=False)), substitution)
    other = None if value is None else substitution.replacement(value, training=False)
    return replacement if other is None else replace(replacement, inference=other.inference)


def _holds_with_other_weights(
    bench: Bench, place: Place, point: Point | None, substitution: Substitution
) -> bool | None:
    """Whether a substitution makes a place agree with other weights, too; None where these show nothing."""
    with other_weights(bench) as varied:
        if not varied:
            return None
        ours = bench.keras.forward(bench.inputs[0], training=place.training)
        expected = bench.expected(ours, place.training)
        theirs = bench.torch.forward(bench.inputs[1], training=place.training)
        injections = {
            tap: value
            for tap, value in bench.injections(expected, theirs)[0].items()
            if tap in place.injections
        }

        def deviation() -> float:
            passed = bench.torch.forward(bench.inputs[1], training=place.training, inject=injections)
            if point is None:
                return max((row.deviation for row in bench.outputs(ours, passed)), default=0.0)
            own = passed.activations.get(point.torch)
            return compared(point.name, expected[point.name], own).deviation

        before = deviation()
        computation = recorded(bench, 0, place)
        value = found_again(computation, substitution)
        if before <= limits.LIVE_FLOAT64 or value is None:
            return None
        replacement = substitution.replacement(value, place.training)
        if replacement is None:
            return None
        undo = replacement.make(bench)
        after = deviation()
        undo.make(bench)
        return after <= limits.LIVE_FLOAT64
