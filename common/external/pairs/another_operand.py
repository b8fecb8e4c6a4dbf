"""A place that torch computes from what another layer gives than Keras does, as where shared layers take turns in another order."""

from __future__ import annotations

from collections.abc import Sequence

from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Explanation
from parity.common.external.pairs.bench import compared
from parity.common.external.pairs.difference_told import in_code
from parity.common.external.pairs.explain import Attribution, DeviatingTensor
from parity.common.external.pairs.places import CAUSE, Place
from parity.common.external.pairs.view import View
from parity.common.external.process.layouts import aligned, back
from parity.common.external.process.pass_result import same

_DEFECT = "computed from"


def another_operand(view: View, tensor: DeviatingTensor, place: Place) -> list[Attribution]:
    """Return that one of several calls of a layer agrees once torch's other layer gives what Keras's gives; none where it does not, or more than
    one tensor is another.

    Args:
        view: of the place.
        tensor: what deviates.
        place: in numbers; torch's layers give what is due.
    """
    bench, point = tensor.bench, tensor.segment.point
    ours, theirs = view.given_alone
    if point is None or len(ours) != 1 or len(theirs) != 1:
        return []
    # Of a layer that is called once the line of code says more.
    if sum(each.keras_layer == point.keras_layer for each in bench.points) == 1:
        return []
    (due,), (own,) = view.keras.values(*ours), view.torch.values(*theirs)
    of_keras = [tap for tap, value in place.activations.items() if same(value, due)]
    of_torch = [tap for tap, value in place.injections.items() if same(value, own)]
    other = next((each for each in bench.points if each.torch in of_torch), None)
    alignment = (
        None if other is None else aligned(place.activations[other.keras], own, bench.layouts.values())
    )
    if not of_keras or other is None or alignment is None:
        return []
    given = back(due, alignment.how)
    if given.shape != own.shape:
        return []
    passed = bench.torch.forward(
        bench.inputs[1],
        training=place.training,
        taps=[point.torch],
        inject=place.injections | dict.fromkeys(of_torch, given),
    )
    left = compared(point.name, place.due, passed.activations.get(point.torch)).deviation
    if left > limits.LIVE_FLOAT64:
        return []
    names = other.keras, of_keras[0]
    user = next(each for each in view.torch_operations if theirs[0] in map(view.torch.source, each.tensors))
    why = Explanation(
        f"{CAUSE}operand",
        f"{in_code(user.line, user.called)}: another tensor: torch computes {point.torch_layer} from what {other.torch_layer} ({names[0]} in Keras) gives, and Keras from what"
        f" {names[1]} gives",
        # With other weights than are due it would not agree so, either.
        "confirmed",
        f"in torch, compute {point.torch_layer} from what is {names[1]} in Keras; shared layers may be called in another order",
        tensor.by_experiment(left, f": given what {names[1]} gives in its place"),
        defect=f"{_DEFECT} {names[0]} {names[1]}",
        layers=(point.keras_layer,),
    )
    return [Attribution(why)]


def crosses_calls(attributed: Sequence[Attribution]) -> bool:
    """Whether what was found is that one of several calls of a layer is of another tensor, so that the later ones are no counterparts."""
    return any(each.explanation.defect.startswith(_DEFECT) for each in attributed)
