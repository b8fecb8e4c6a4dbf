"""Calls that compute element by element, or normalise: another operand, another function, another order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Parameter

from parity.common.external.process.altering import GRADIENT, MANY, Ways
from parity.torch_impl.alterations.base import AXES_OF_SEQUENCES, Function, tensors_of

RECURRENT = ("gru", "lstm", "rnn_tanh", "rnn_relu")

# Calls of which an operand may be another tensor, and those of which weights may be those of another layer.
TAKING = (
    "add",
    "radd",
    "iadd",
    "sub",
    "mul",
    "div",
    "truediv",
    "matmul",
    "bmm",
    "linear",
    "einsum",
    "cat",
    "stack",
    *RECURRENT,
)
WEIGHTED = ("linear", "conv1d", "conv2d", "conv3d", "embedding")

NORMS = ("batch_norm", "layer_norm", "group_norm", "rms_norm")

ACTIVATIONS = (
    *("relu", "relu6", "leaky_relu", "elu", "selu", "gelu", "silu", "tanh", "sigmoid", "softplus"),
    *("hardswish", "hardsigmoid"),
)

# Functions of one operand that a port leaves out or has too much.
PLAIN = ("sqrt", "rsqrt", "square", "pow", "exp", "log", "log1p", "abs", "clamp", "neg", "sin", "cos")

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
    "relu6": F.relu6,
    "mish": F.mish,
}


def changes_in_place(func: Function, args: Any, kwargs: Any) -> bool:
    """Return whether a call changes its first operand."""
    name = getattr(func, "__name__", "")
    in_place = kwargs.get("inplace") is True or (name in ACTIVATIONS and len(args) > 1 and args[-1] is True)
    in_place |= name.rstrip("_") != name and (not name.startswith("__") or name in _IN_PLACE)
    return in_place and bool(args) and isinstance(args[0], Tensor)


def apart(func: Function, args: Any, kwargs: Any) -> Ways:
    """With its input kept as it is, of a call that changes it in place."""
    if not changes_in_place(func, args, kwargs):
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
    ways |= _of_operands(name, func, args)
    if name not in ("sub", "div", "truediv", "subtract", "rsub") or len(tensors) == 1:
        for tensor in tensors:
            if tensor.is_floating_point() and tensor.shape == torch.broadcast_shapes(
                *(each.shape for each in tensors)
            ):
                other = next((i for i, each in enumerate(args, 1) if each is not tensor), 0)
                what = f"has operand {other}, and Keras has not"
                if len(tensors) == 1:
                    what = f"is left out by Keras{_or_neutral(name, other, args[other - 1])}"
                ways[f"without {other}"] = (what, lambda tensor=tensor: tensor.clone())
    return ways


def _or_neutral(name: str, place: int, number: Any) -> str:
    """In words the number that changes nothing where operand `place` is: with it the result is the same as without the call."""
    if (
        not isinstance(number, int | float)
        or name in ("rsub", "rtruediv")
        or (place == 1 and name not in _EITHER_WAY)
    ):
        return ""
    return f", or has {0 if name in SUMS else 1} there and not {number:g}"


# What is done to two operands, and what may be meant instead.
_OPPOSITES: dict[str, tuple[str, Function]] = {
    **dict.fromkeys(("add", "iadd"), ("subtracts the second operand", torch.sub)),
    **dict.fromkeys(("sub", "subtract", "isub"), ("adds the operands", torch.add)),
    **dict.fromkeys(("mul", "multiply", "imul"), ("divides by the second operand", torch.div)),
    **dict.fromkeys(("div", "truediv", "true_divide", "itruediv"), ("multiplies the operands", torch.mul)),
}
SUMS = ("add", "radd", "iadd", "sub", "subtract", "rsub", "isub")
_EITHER_WAY = ("add", "radd", "iadd", "mul", "rmul", "multiply", "imul")
_FACTORS = ("mul", "multiply", "imul")
SCALES = ("mul", "multiply", "imul", "div", "truediv", "true_divide", "itruediv")


def _of_operands(name: str, func: Function, args: Any) -> Ways:
    """The opposite function; and of a factor or a divisor its root and its square."""
    ways: Ways = {}
    if name in _OPPOSITES and isinstance(args[0], Tensor):
        text, opposite = _OPPOSITES[name]
        ways["opposite"] = (f"does the opposite of what Keras does, which {text}", partial(opposite, *args))
    by = args[1]
    if name in SCALES and isinstance(args[0], Tensor) and (isinstance(by, Tensor) or by > 0):
        text = "takes operand 2 as it is, and its {} is right"
        ways["root"] = (text.format("square root"), lambda: func(args[0], by**0.5))
        ways["square"] = (text.format("square"), lambda: func(args[0], by * by))
    floating = name in _FACTORS and all(
        isinstance(each, Tensor) and each.is_floating_point() for each in args
    )
    for place in range(2) if floating else ():
        # Of a scale that is learned as the difference from one, and of a gate that lets the rest of one through.
        for text, function in (("1 + operand", _one_plus), ("1 - operand", _one_minus)):
            told = f"takes operand {place + 1} as it is, and {text} {place + 1} is right"
            call = partial(with_operand, place, function, func, args)
            ways[f"{MANY} {text} {place + 1}"] = (told, call)
    return ways | _broadcast(func, args)


def _one_plus(factor: Tensor) -> Tensor:
    return 1 + factor


def _one_minus(factor: Tensor) -> Tensor:
    return 1 - factor


def with_operand(place: int, function: Function, func: Function, args: Any) -> Any:
    """Call a function with another function of one of its operands in that operand's place."""
    return func(*[function(each) if at == place else each for at, each in enumerate(args)])


def _broadcast(func: Function, args: Any) -> Ways:
    """The smaller operand along another axis of the larger one that is as long."""
    if len(tensors_of(args)) != 2 or args[0].shape == args[1].shape:
        return {}
    ways: Ways = {}
    for place, small in enumerate(args):
        large = args[1 - place]
        axes = [axis for axis, size in enumerate(small.shape, large.dim() - small.dim()) if size != 1]
        if small.dim() > large.dim() or len(axes) != 1:
            continue
        size = small.numel()
        for axis in range(large.dim()):
            if axis == axes[0] or large.shape[axis] != size:
                continue
            shape = [size if each == axis else 1 for each in range(large.dim())]
            given = [small.reshape(shape) if each is small else each for each in args]
            text = f"takes operand {place + 1} along axis {axes[0]}, and along axis {axis} is right"
            ways[f"operand {place + 1} along axis {axis}"] = (text, partial(func, *given))
    return ways


def other_operands(func: Function, args: Any, kwargs: Any, results: Iterable[tuple[str, Any]]) -> Ways:
    """An operand in whose place is what was computed at another place before it."""
    ways: Ways = {}
    joined = bool(args) and isinstance(args[0], list | tuple)
    operands = list(args[0]) if joined else list(args)
    # Operands are counted from one; of an einsum, its equation comes before them.
    first = 0 if args and isinstance(args[0], str) else 1
    for back, (name, result) in enumerate(reversed(list(results)), start=1):
        for place, operand in enumerate(operands):
            # The states of an LSTM are two.
            shapes = [[each.shape for each in _states(both)] for both in (operand, result)]
            same = bool(shapes[0]) and shapes[0] == shapes[1] and not isinstance(operand, Parameter)
            if not same or any(result is each for each in operands):
                continue
            number = place + first
            text = f"takes another tensor: in place of operand {number} what {name} gave, {back} calls before, is right"
            changed = [result if at == place else each for at, each in enumerate(operands)]
            given = (changed, *args[1:]) if joined else tuple(changed)
            ways[f"{MANY} operand {number} from {back}"] = (text, partial(func, *given, **kwargs))
    return ways


def _states(operand: Any) -> list[Tensor]:
    """The tensors of an operand that is one, or the two states of an LSTM."""
    both = operand if isinstance(operand, tuple) and len(operand) == 2 else (operand,)
    return [each for each in both if isinstance(each, Tensor)] if len(tensors_of(both)) == len(both) else []


# A layer's path and its own parameters by name; and by a parameter's identity its layer, with those of the same kind and shapes.
Layer = tuple[str, dict[str, Parameter]]
Alike = dict[int, tuple[Layer, list[Layer]]]


def alike(model: nn.Module) -> Alike:
    """Which layers of a model could have each other's weights, by the identity of each parameter."""
    groups: dict[object, list[Layer]] = {}
    for path, module in model.named_modules():
        own = dict(module.named_parameters(recurse=False))
        shapes = tuple((name, each.shape) for name, each in own.items())
        groups.setdefault((type(module), shapes), []).append((path, own))
    found: Alike = {}
    for members in groups.values():
        for layer in members:
            for each in layer[1].values():
                found.setdefault(id(each), (layer, members))
    return found


def other_weights(func: Function, args: Any, kwargs: Any, layers: Alike, most: int = 6) -> Ways:
    """The weights of another layer of the same kind and shapes."""
    known = [layers.get(id(each)) for each in (*args, *kwargs.values()) if isinstance(each, Parameter)]
    if not known or known[0] is None or any(each is None or each[0][0] != known[0][0][0] for each in known):
        return {}
    (path, own), members = known[0]
    ways: Ways = {}
    for other, theirs in [layer for layer in members if layer[0] != path][:most]:
        place = {id(each): theirs[name] for name, each in own.items()}
        changed = [place.get(id(each), each) for each in args]
        rest = {key: place.get(id(each), each) for key, each in kwargs.items()}
        text = f"uses the weights of {path}, and those of {other} are right"
        ways[f"{MANY} weights of {other}"] = (text, partial(func, *changed, **rest))
    return ways


def transposed(func: Function, args: Any, kwargs: Any) -> Ways:
    """Its input with the last two axes exchanged."""
    given = args[0] if args else None
    if not isinstance(given, Tensor) or given.dim() < AXES_OF_SEQUENCES or given.shape[-1] != given.shape[-2]:
        return {}
    text = "takes its input as it is, and with the last two axes exchanged is right"
    return {f"{MANY} transposed": (text, lambda: func(given.transpose(-1, -2), *args[1:], **kwargs))}


def followed(name: str, stock: Callable[[], Any]) -> Ways:
    """A function behind a call that has none."""
    return {
        f"{MANY} then {other}": (
            f"is followed by no activation, and {other} behind it is right",
            lambda function=function: function(stock()),
        )
        for other, function in _FUNCTIONS.items()
        if other != "linear"
    }


def stopped(func: Function, args: Any, kwargs: Any) -> Ways:
    """A call through whose operand, or whose result, no gradient goes."""
    text = "lets the gradient of {} through, and Keras stops it"
    if args and isinstance(args[0], list | tuple):
        operands = list(args[0])
        return {
            f"{GRADIENT} stopped {place + 1}": (
                text.format(f"operand {place + 1}"),
                partial(
                    func, [*operands[:place], each.detach(), *operands[place + 1 :]], *args[1:], **kwargs
                ),
            )
            for place, each in enumerate(operands)
            if isinstance(each, Tensor)
        }
    return {f"{GRADIENT} stopped": (text.format("its result"), lambda: _detached(func(*args, **kwargs)))}


def _detached(result: Any) -> Any:
    return result.detach() if isinstance(result, Tensor) else result


def left_out(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """A function of one operand, left out."""
    given = args[0] if args else kwargs.get("input")
    if not isinstance(given, Tensor) or not given.is_floating_point():
        return {}
    ways: Ways = {"absent": (f"{name} is left out by Keras", lambda: given.clone())}
    if name in ("sqrt", "rsqrt", "log", "clamp"):
        rest = {key: value for key, value in kwargs.items() if key != "input"}
        text = "takes its operand as it is, and 1 + the operand is right"
        ways["of one more"] = (text, lambda: func(1 + given, *args[1:], **rest))
    if name in ("sin", "cos"):
        other = torch.cos if name == "sin" else torch.sin
        ways[other.__name__] = (f"is there, and {other.__name__} is right", lambda: other(given))
    return ways


def contracted(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """An einsum with two letters of one operand exchanged, where their axes are as long."""
    if not args or not isinstance(args[0], str) or "..." in args[0]:
        return {}
    left, arrow, right = args[0].replace(" ", "").partition("->")
    terms, operands = left.split(","), tensors_of(args[1:])
    ways: Ways = {}
    for number, (term, operand) in enumerate(zip(terms, operands, strict=False)):
        for i, j in itertools.combinations(range(1, len(term)), 2):
            if term[i] == term[j] or operand.shape[i] != operand.shape[j]:
                continue
            letters = list(term)
            letters[i], letters[j] = letters[j], letters[i]
            equation = ",".join([*terms[:number], "".join(letters), *terms[number + 1 :]]) + arrow + right
            text = f"computes {args[0]!r}, and {equation!r} is right"
            ways[f"{MANY} equation {equation}"] = (text, partial(func, equation, *args[1:], **kwargs))
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
