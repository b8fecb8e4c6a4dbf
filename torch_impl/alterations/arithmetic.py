"""Calls that compute element by element, or normalise: another operand, another function, another order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from parity.common.external.process.altering import GRADIENT, Ways
from parity.torch_impl.alterations.base import AXES_OF_SEQUENCES, Function, tensors_of

SUMS = ("add", "radd", "iadd")

NORMS = ("batch_norm", "layer_norm", "group_norm", "rms_norm")

ACTIVATIONS = (
    *("relu", "relu6", "leaky_relu", "elu", "selu", "gelu", "silu", "tanh", "sigmoid", "softplus"),
    *("hardswish", "hardsigmoid"),
)

_IN_PLACE = ("__iadd__", "__isub__", "__imul__", "__itruediv__")


_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: x.clone(),
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu by tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "elu": F.elu,
    "selu": F.selu,
    "softplus": F.softplus,
    "leaky_relu 0.3": partial(F.leaky_relu, negative_slope=0.3),
    "leaky_relu 0.2": partial(F.leaky_relu, negative_slope=0.2),
    "leaky_relu 0.1": partial(F.leaky_relu, negative_slope=0.1),
    "leaky_relu 0.01": F.leaky_relu,
    "hard_sigmoid": F.hardsigmoid,
    "hard_swish": F.hardswish,
}


def apart(func: Function, args: Any, kwargs: Any) -> Ways:
    """With its input kept as it is, of a call that changes it in place."""
    name = getattr(func, "__name__", "")
    in_place = kwargs.get("inplace") is True or (name in ACTIVATIONS and len(args) > 1 and args[-1] is True)
    in_place |= name.rstrip("_") != name and (not name.startswith("__") or name in _IN_PLACE)
    if not in_place or not args or not isinstance(args[0], Tensor):
        return {}
    text = "changes its input in place, which another call reads"
    return {"in place": (text, lambda: func(args[0].clone(), *args[1:], **kwargs))}


def computed(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """Arithmetic of two operands: exchanged, or one of them alone."""
    if kwargs or len(args) != 2:
        return {}
    tensors = tensors_of(args)
    ways: Ways = {}
    if len(tensors) == 2 and name not in ("add", "mul", "radd", "rmul", "iadd", "imul"):
        exchanged = "takes its operands the other way round"
        ways["exchanged"] = (exchanged, lambda: func(args[1], args[0]))
    if name not in ("sub", "div", "truediv", "subtract", "rsub") or len(tensors) == 1:
        for tensor in tensors:
            if tensor.is_floating_point() and tensor.shape == torch.broadcast_shapes(
                *(each.shape for each in tensors)
            ):
                other = next((i for i, each in enumerate(args, 1) if each is not tensor), 0)
                what = (
                    "is left out by Keras" if len(tensors) == 1 else f"has operand {other}, and Keras has not"
                )
                ways[f"without {other}"] = (what, lambda tensor=tensor: tensor.clone())
    return ways


def other_operands(func: Function, args: Any, kwargs: Any, results: Iterable[tuple[str, Any]]) -> Ways:
    """A sum of what was computed at another place before it."""
    ways: Ways = {}
    if kwargs or len(args) != 2 or len(tensors_of(args)) != 2:
        return ways
    for back, (name, result) in enumerate(reversed(list(results)), start=1):
        for place, operand in enumerate(args):
            same = isinstance(result, Tensor) and result.shape == operand.shape
            if not same or any(result is each for each in args):
                continue
            text = f"adds another tensor: in place of operand {place + 1} what {name} gave, {back} calls before, is right"
            changed = [result if number == place else each for number, each in enumerate(args)]
            ways[f"operand {place + 1} from {back}"] = (text, partial(func, *changed))
    return ways


def multiplied(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """Attention's scores, scaled or not."""
    tensors = tensors_of(args)
    if len(tensors) != len(args) or len(tensors) != 2 or tensors[0].dim() < AXES_OF_SEQUENCES:
        return {}
    scale = tensors[0].shape[-1] ** -0.5
    return {
        "scaled": (
            f"is not scaled, and Keras divides by the square root of {tensors[0].shape[-1]}",
            lambda: func(*args, **kwargs) * scale,
        )
    }


def activated(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """Another function in its place."""
    given = args[0] if args else kwargs["input"]
    ways: Ways = {}
    for other, function in _FUNCTIONS.items():
        if other == name:
            continue
        text = (
            f"{name} is there, and {other} is right" if other != "linear" else f"{name} is left out by Keras"
        )
        ways[other] = (text, partial(function, given))
    return ways


def normalized(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """Behind an activation, or along another axis."""
    given = args[0] if args else kwargs["input"]
    rest = {key: value for key, value in kwargs.items() if key != "input"}
    ways: Ways = {
        f"behind {other}": (
            f"comes before the activation, and Keras has {other} before the normalisation",
            lambda function=function: func(function(given), *args[1:], **rest),
        )
        for other, function in _FUNCTIONS.items()
        if other != "linear"
    }
    for axis in range(1, given.dim() - 1):
        if name == "layer_norm" and given.shape[axis] == given.shape[-1]:
            ways[f"axis {axis}"] = (
                f"normalises the last axis, and axis {axis} is right",
                lambda axis=axis: func(given.transpose(axis, -1), *args[1:], **rest).transpose(axis, -1),
            )
    return ways


def attached(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """A tensor through which the gradient goes."""
    given = args[0]
    if not given.is_floating_point():
        return {}
    text = "stops the gradient, and Keras's goes through"
    return {f"{GRADIENT} through": (text, lambda: given.clone())}


def embedded(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """An embedding in which every row has a gradient."""
    rest = dict(zip(("padding_idx",), args[2:], strict=False)) | kwargs
    # Without such a row too: calls are counted, and a setting that is changed must not change their number.
    text = f"leaves out the gradient of row {rest.get('padding_idx')}, and Keras does not"
    without = {**rest, "padding_idx": None}
    return {f"{GRADIENT} of padding": (text, partial(func, *args[:2], *args[3:], **without))}
