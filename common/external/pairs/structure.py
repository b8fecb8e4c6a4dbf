"""Structural causes of a deviation: from where on torch computes something else than Keras, of tensors that both have.

Both passes are recorded, operation by operation. Between a place that deviates and the tensors before it that agree, one of
torch's operations is sought that makes the place agree once it gives what an operation of Keras's gives. What both compute there, of
the same tensors, are two expressions, and where these differ is the cause.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from parity.common.base.errors import ExternalModelError
from parity.common.base.words import listed
from parity.common.diagnosis import limits
from parity.common.external.pairs.another_operand import another_operand
from parity.common.external.pairs.bench import Bench, compared
from parity.common.external.pairs.code_edits import fitting_edit, fitting_edits, told_edits
from parity.common.external.pairs.explain import (
    Attribution,
    DeviatingTensor,
    Reversible,
    made,
    measured_with,
)
from parity.common.external.pairs.places import (
    CAUSE,
    Place,
    Replacement,
    Substitution,
    calls_of,
    found_again,
    later_key,
    recorded,
)
from parity.common.external.pairs.points import Point
from parity.common.external.pairs.varied_weights import other_weights
from parity.common.external.pairs.view import OF_ORDER, ONLY_ORDER, View

# A line of code in a text.
_LINE = re.compile(r"[^ ,]+\.py:\d+")
# How a text speaks of a table that Keras has in place of a tensor of torch's.
_TABLE = re.compile(r"where Keras takes a tensor of \S+ numbers")
# What is off behind a place and at it where a pass fails.
_FAILED = (math.inf, math.inf)
# What gives a weight's numbers in TensorFlow, which stands in code of Keras's.
_READS = "ReadVariableOp"
# A training step may call the model several times; of more calls no more are put right.
_CALLS = 8


def structural_causes(
    tensor: DeviatingTensor,
    behind: Callable[[], tuple[float, float]],
    place: Place,
    keeps: Callable[[Sequence[Reversible]], bool],
    edits: bool = True,
) -> list[Attribution]:
    """Return what makes a deviation in a forward pass vanish, an attribution for each difference; none where nothing does.

    Args:
        tensor: what deviates. behind: how far that is off which torch makes of it, and itself in the same pass.
        place: the same, in numbers.
        keeps: whether all that agreed before does so with changes, too; else they are no cause.
        edits: whether edits of the code are tried.
    """
    view = View(tensor.bench, place)
    point = tensor.segment.point
    if operand := another_operand(view, tensor, place):
        return operand
    layers = ("the outputs" if point is None else point.keras_layer,)
    lines = set[tuple[int, ...]]()
    tried = itertools.chain(view.rearranged(), view.trials())
    told = list[Attribution]()
    for (operation, _, _), group in itertools.groupby(tried, key=_results):
        found = list[Substitution]()
        # What a loop does otherwise it does each time: one call alone put right shows nothing.
        several = view.repeated(operation, lines)
        lines |= {tuple(each.torch.number for each in calls) for calls in several}
        found = next((calls for calls in several if _follows(view, behind, keeps, calls)), [])
        found = found or _best_of(view, tensor, behind, keeps, group)
        if found:
            told = _told(view, tensor, place, point, found, layers)
            break
    if edits and (not told or _is_unclear(told)):
        told = _by_edits(view, tensor, place, point, keeps) or told
    if told:
        return _as_code(tensor.bench, told, _keeping(tensor, keeps)) if edits else told
    nothing = view.computes_nothing
    if view.has_ends and (tensor.deviation == math.inf or nothing):
        read = view.as_read(layers)
        return [each for each in read if not nothing or each.explanation.cause == f"{CAUSE}left_out"]
    return []


def _keeping(
    tensor: DeviatingTensor, keeps: Callable[[Sequence[Reversible]], bool]
) -> Callable[[Sequence[Reversible]], float]:
    """What measures the deviation that is left with changes; infinite where they spoil what agreed before."""

    def deviation(changes: Sequence[Reversible]) -> float:
        left = tensor.deviation_with(changes)
        try:
            return left if left > limits.LIVE_FLOAT64 or keeps(changes) else math.inf
        except ExternalModelError:
            return math.inf  # the place agrees by its elements alone, and the loss takes another shape

    return deviation


def _is_unclear(told: Sequence[Attribution]) -> bool:
    """Whether nothing more is known of something than that it is another computation, or nothing is certain."""
    certain = any(each.explanation.confidence == "confirmed" for each in told)
    return not certain or any(each.explanation.cause == f"{CAUSE}other" for each in told)


def _by_edits(
    view: View,
    tensor: DeviatingTensor,
    place: Place,
    point: Point | None,
    keeps: Callable[[Sequence[Reversible]], bool],
) -> list[Attribution]:
    """Edits of torch's code between the place and what agrees."""
    found = fitting_edits(view, _keeping(tensor, keeps))
    if found is None:
        return []
    edits, left = found
    holds = _holds_with_other_weights(tensor.bench, place, point, lambda: edits)
    evidence = tensor.by_experiment(left, ": run so" + (", and so with other weights" if holds else ""))
    layer = "the outputs" if point is None else point.keras_layer
    told = told_edits(tensor.bench, edits, holds is True, evidence, (layer,))
    if not (doubtful := view.doubtful_before):
        return told
    # Weights in another order may do as much as elements in another order.
    why = ONLY_ORDER.format(listed(doubtful))
    unsure = [f"{CAUSE}{kind}" for kind in OF_ORDER]
    return [
        replace(
            one,
            explanation=replace(
                one.explanation, confidence="likely", evidence=one.explanation.evidence + why
            ),
        )
        if one.explanation.cause in unsure
        else one
        for one in told
    ]


def _as_code(
    bench: Bench, told: Sequence[Attribution], deviation: Callable[[Sequence[Reversible]], float]
) -> list[Attribution]:
    """What was found by other results of operations with edits of their lines in place of these, where some fit: gradients go through them."""
    found = [*told]
    for number, each in enumerate(told):
        rest = [change for other in found if other is not each for change in other.changes]
        found[number] = _one_as_code(bench, each, rest, deviation)
    return found


def _one_as_code(
    bench: Bench,
    told: Attribution,
    rest: Sequence[Reversible],
    deviation: Callable[[Sequence[Reversible]], float],
) -> Attribution:
    why = told.explanation
    lines = _LINE.findall(why.text.partition(": ")[0])
    if any(not isinstance(change, Replacement) for change in told.changes):
        return told
    if rest and deviation(rest) <= limits.LIVE_FLOAT64:
        return told  # results behind it are put right, and whatever it computes would do
    # A table is what other code makes; one number many formulas give.
    built_by = ("built_by",) if _TABLE.search(why.text) else ()
    found = fitting_edit(bench, lines, lambda edit: deviation([*rest, edit]), others=built_by)
    if found is None:
        return told
    edit, _ = found
    if edit.kind == "sequence" or (why.cause == f"{CAUSE}other" and edit.line in lines):
        # The operation that is put right is a part of what changes its place; and an edit says more than another formula.
        why = edit.explanation(why.confidence == "confirmed", why.evidence, why.layers)
    elif edit.line not in lines:
        why = replace(why, text=f"{why.text}; that is, {edit.text}", fix=edit.fix)
    else:
        why = replace(why, fix=f"{why.fix}; {edit.fix}" if why.fix else edit.fix)
    return Attribution(why, (edit,))


def _results(substitution: Substitution) -> tuple[int, int, int]:
    return substitution.torch.number, substitution.torch_result, substitution.keras_result


def _follows(
    view: View,
    behind: Callable[[], tuple[float, float]],
    keeps: Callable[[Sequence[Replacement]], bool],
    calls: Sequence[Substitution],
) -> bool:
    """Whether what follows agrees with several operations put right at once, and all that agreed before still does."""
    changes = view.replacements(calls)
    if not changes:
        return False
    after, _ = measured_with(view.bench, changes, behind, _FAILED)
    return after <= limits.LIVE_FLOAT64 and keeps(changes)


def _best_of(
    view: View,
    tensor: DeviatingTensor,
    behind: Callable[[], tuple[float, float]],
    keeps: Callable[[Sequence[Replacement]], bool],
    group: Iterable[Substitution],
) -> list[Substitution]:
    """Of one result in several orders of its elements the first with which what follows agrees, else the place itself; none where none is.

    Where what follows agrees, so does the order of elements; of two defects, one by the other's place, that does not.
    """
    found = list[Substitution]()
    for substitution in group:
        changes = view.replacements([substitution])
        if not changes:
            continue
        after, here = measured_with(view.bench, changes, behind, _FAILED)
        follows = after <= limits.LIVE_FLOAT64
        agrees = follows or (
            here <= limits.LIVE_FLOAT64 and tensor.deviation_with(changes) <= limits.LIVE_FLOAT64
        )
        if (follows or not found) and agrees and keeps(changes):
            found = [substitution]
            if follows:
                break
    return found


def _told(
    view: View,
    tensor: DeviatingTensor,
    place: Place,
    point: Point | None,
    found: Sequence[Substitution],
    layers: tuple[str, ...],
) -> list[Attribution]:
    """What was found, one operation or the calls of a line, with the changes that make it good."""
    changes = view.replacements(found)
    deviation = tensor.deviation_with(changes)
    if place.training or tensor.bench.trains_by_step:
        changes = _in_the_other_mode(view, tensor.bench, place, found, changes)

    def elsewhere() -> list[Replacement | None]:
        computation = recorded(tensor.bench, 0, place)
        values = [found_again(computation, each) for each in found]
        return [
            None if value is None else each.replacement(value, place.training)
            for each, value in zip(found, values, strict=True)
        ]

    holds = _holds_with_other_weights(tensor.bench, place, point, elsewhere)
    view.record_again()
    calls = f" in these {len(found)} calls" if len(found) > 1 else ""
    evidence = tensor.by_experiment(
        deviation,
        f": all that is used there agrees, and with what Keras computes in its place{calls} so does what follows"
        + ("; with other weights, too" if holds else ""),
    )

    def agrees(change: Replacement) -> bool:
        return tensor.deviation_with([change]) <= limits.LIVE_FLOAT64

    return view.attributed(found, changes, evidence, layers, holds is True, agrees)


def put_right_alike(bench: Bench, found: Attribution, places: Mapping[int, Place]) -> dict[int, Replacement]:
    """What puts other places right as one was, by operations of the same lines; by number, of those that have such.

    places: of one pass, in which torch's layers give what is due at all of them.
    """
    first = next(iter(places.values()), None)
    if found.by is None or first is None:
        return {}
    view = View(bench, first)
    ways = {number: view.like(found.by, place) for number, place in places.items()}
    several = [(number, way) for number, way in ways.items() if way is not None]
    values = view.keras.values(*(way.keras_result for _, way in several)) if several else []
    made = [
        (number, way, change)
        for (number, way), value in zip(several, values, strict=True)
        if (change := way.replacement(value, first.training)) is not None
    ]
    if not first.training:
        return {number: change for number, _, change in made}
    calls, changes = [way for _, way, _ in made], [change for *_, change in made]
    joined = _in_the_other_mode(view, bench, first, calls, changes)
    return {number: change for (number, *_), change in zip(made, joined, strict=True)}


def causes_of_loss(bench: Bench, places: Sequence[tuple[Place, Callable[[], float]]]) -> list[Attribution]:
    """Return what makes two losses of the users' own one number; none where nothing does.

    Args:
        places: the losses, and how far the two numbers are apart now; then the same with other targets, which must agree by the
            same operation of Keras's. Without such what is found is only likely.
    """
    (place, deviation), *others = places
    view, was = View(bench, place), deviation()

    def with_change(change: Reversible, measure: Callable[[], float]) -> float:
        # An operation may take no such numbers, as a length below 0.
        return measured_with(bench, [change], measure, math.inf)

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

        told = view.attributed([substitution], [], evidence, ("loss",), bool(others), agrees, True)
        break
    else:
        told = []

    def with_edits(edits: Sequence[Reversible]) -> float:
        left = 0.0
        for _, measure in places:
            left = max(left, measured_with(bench, edits, measure, math.inf))
            if left > limits.LIVE_FLOAT64:
                break
        return left

    if told and not _is_unclear(told):
        return _as_code(bench, told, with_edits)

    edited = fitting_edits(view, with_edits)
    if edited is None:
        return told
    edits, left = edited
    also = "; with other targets, too" if others else ""
    evidence = f"by experiment: the losses differ by {was:.2g}, and with it by {left:.2g}{also}"
    return told_edits(bench, edits, bool(others), evidence, ("loss",))


def lines_of(bench: Bench, place: Place) -> tuple[str, ...]:
    """The lines of torch's code, and of Keras's, that compute what deviates, from tensors that agree, in their order."""
    view = View(bench, place)
    operations = (each for each in (*view.torch_operations, *view.keras_operations) if each.name != _READS)
    return tuple(dict.fromkeys(each.line for each in operations if each.line))


def _in_the_other_mode(
    view: View, bench: Bench, place: Place, found: Sequence[Substitution], changes: Sequence[Replacement]
) -> list[Replacement]:
    """The same replacements, in inference, too, or in each call of a training step, with what Keras computes there, where it does so."""
    training = not place.training
    losses = bench.losses if training else place.losses
    computation = recorded(bench, 0, replace(place, training=training, losses=losses))
    result = list[Replacement]()
    for change, each in zip(changes, found, strict=True):
        calls = calls_of(view.keras, each.keras_key[0]), calls_of(view.torch, change.key)
        for again in range(_CALLS if training else 1):
            value = found_again(computation, each, again * calls[0])
            other = None if value is None else each.replacement(value, training)
            if other is None:
                result += [] if again else [change]
                break
            result.append(
                replace(other, key=later_key(change.key, again * calls[1])) if again else change.joined(other)
            )
    return result


def _holds_with_other_weights(
    bench: Bench, place: Place, point: Point | None, due: Callable[[], Sequence[Reversible | None]]
) -> bool | None:
    """Whether changes make a place agree with other weights, too; None where these show nothing. due: the changes that it then takes."""
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
        if before <= limits.LIVE_FLOAT64:
            return None
        changes = due()
        if None in changes:
            return None
        with made(bench, [change for change in changes if change is not None]):
            return deviation() <= limits.LIVE_FLOAT64
