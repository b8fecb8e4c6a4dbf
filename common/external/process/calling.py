"""How named arrays are handed to a model that takes them in a way of its own."""

from __future__ import annotations

import difflib
import inspect
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from parity.common.base.errors import ExternalModelError, SpecError
from parity.common.external.process.pass_result import Array, Arrays
from parity.common.spec.imported_loss import ALONE
from parity.common.spec.losses import LossBase

# Parameters that are no inputs.
_CONTROLS = {"training", "mask"}
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def arrange(
    inputs: Mapping[str, Any], signature: inspect.Signature, function: str
) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments for a model's forward function.

    Names that are all parameters of it go by name. Else a single input goes first, several go in one dict to a
    function of one parameter, and in their own order to one with at least as many parameters, none of which has
    one of their names, or all but one at the same place.

    Raises:
        ExternalModelError: some names are parameters and others are not, or there are too many or too few.
    """
    given = signature.parameters.values()
    parameters = [
        p for p in given if (p.name not in _CONTROLS or p.name in inputs) and p.kind not in _VARIABLE
    ]
    named = {p.name for p in parameters if p.kind is not inspect.Parameter.POSITIONAL_ONLY}
    any_name = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in given)
    any_number = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in given)
    needed = [p.name for p in parameters if p.default is inspect.Parameter.empty]
    known = set(inputs) & named
    if set(inputs) <= named and set(needed) <= set(inputs):
        return [], dict(inputs)
    if len(inputs) == 1 and len(needed) <= 1 and (parameters or any_number):
        return list(inputs.values()), {}
    if any_name and not parameters and not any_number and ALONE not in inputs:
        return [], dict(inputs)
    if known and any_name and set(needed) <= set(inputs):
        return [], dict(inputs)
    if not known and len(parameters) == 1 and not any_number:
        return [dict(inputs)], {}
    if not known and len(needed) <= len(inputs) and (any_number or len(inputs) <= len(parameters)):
        return list(inputs.values()), {}
    other, due = ([name for name in ones if name not in known] for ones in (inputs, needed))
    if len(other) == len(due) == 1 and list(inputs).index(other[0]) == needed.index(due[0]):
        return [], {due[0] if name == other[0] else name: value for name, value in inputs.items()}
    others = f", or leave others out: --inputs {','.join(needed)}" if set(needed) < set(inputs) else ""
    if not others and len(needed) < len(inputs):
        others = ", or leave out those that are none: --inputs NAME[,NAME...]"
    raise ExternalModelError(
        f"the model's {function} takes ({', '.join(str(p) for p in given)[:200]}), received the inputs"
        f" {', '.join(inputs)}; name the inputs as its parameters{others}"
    )


# Models that take a tuple: what a call that fails has done, taps count.
_TAKE_TUPLES: weakref.WeakSet[Any] = weakref.WeakSet()


def called(function: partial[Any], args: Sequence[Any]) -> Any:
    """Call a model; where it is given several inputs in one dict and cannot take them so, as a tuple in their order."""
    several = len(args) == 1 and isinstance(args[0], dict) and len(args[0]) > 1
    if several and function.func in _TAKE_TUPLES:
        return function(tuple(args[0].values()))
    try:
        return function(*args)
    except (TypeError, KeyError, ValueError, IndexError) as error:
        if not several:
            raise
        try:
            result = function(tuple(args[0].values()))
        except Exception:
            raise error from None
        _TAKE_TUPLES.add(function.func)
        return result


def chosen_outputs(outputs: Mapping[str, Any], targets: Array | Arrays) -> list[tuple[str, Array]]:
    """Names of outputs with their targets (batch, ...); raises ExternalModelError where it is not clear which is meant."""
    if isinstance(targets, dict):
        unknown = [name for name in targets if name not in outputs]
        if len(targets) == len(outputs) == 1:
            return list(zip(outputs, targets.values(), strict=True))
        if unknown or not targets:
            raise ExternalModelError(
                f"targets are named {', '.join(targets) or '(none)'}, and the model gives {_named(outputs)}"
            )
        return list(targets.items())
    if not outputs:
        raise ExternalModelError("the model gives no tensor, so there is no loss")
    name = next(iter(outputs)) if len(outputs) == 1 else "logits"
    if name not in outputs:
        raise ExternalModelError(
            f"the model gives {_named(outputs)}, and it is not clear which of them the targets are for;"
            " give targets by the name of the output"
        )
    return [(name, targets)]


def check_target(loss: LossBase, name: str, output: tuple[int, ...], target: Array) -> None:
    """Raise ExternalModelError where a target is not of the shape that the loss wants: it might be broadcast."""
    try:
        wanted = (output[0], *loss.target_shape(output[1:])) if output else ()
    except SpecError as error:
        raise ExternalModelError(f"the output {name!r} does not suit the loss: {error}") from None
    if tuple(target.shape) != wanted:
        raise ExternalModelError(
            f"the output {name!r} has the shape {output}, so the loss wants targets of the shape {wanted}; received"
            f" {tuple(target.shape)}"
        )


def check_reached(trained: Collection[str], reached: Collection[str]) -> None:
    """Raise ExternalModelError where a gradient reached none of the trained tensors."""
    if not trained:
        raise ExternalModelError("the model has no trained tensor, so there is no gradient to take")
    if not any(name in reached for name in trained):
        raise ExternalModelError(
            f"no gradient reaches any of the {len(trained)} trained tensors: the outputs do not depend on them, or were computed under"
            " no_grad, stop_gradient or detach()"
        )


def _named(outputs: Mapping[str, Any]) -> str:
    names = list(outputs)
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")


def check_tensors(tensors: Mapping[str, Any], state: Arrays) -> None:
    """Raise ExternalModelError for the first array whose name no tensor has, or whose shape is another."""
    for name, array in state.items():
        if name not in tensors:
            raise ExternalModelError(f"the model has no tensor {name!r}{closest(name, tensors)}")
        shape = tuple(tensors[name].shape)
        if tuple(array.shape) != shape:
            raise ExternalModelError(f"{name} has the shape {shape}, received {array.shape}")


def closest(name: str, known: Iterable[str], cutoff: float = 0.4) -> str:
    """Return '; closest are ...' for a mistyped name, '' where none of the known ones is like it."""
    near = difflib.get_close_matches(name, list(known), 3, cutoff)
    return f"; closest are {', '.join(near)}" if near else ""
