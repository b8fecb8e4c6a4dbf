"""Experiments on the functions that a live model calls: with other operands, another axis, another mask."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from parity.common.external.process.altering import HEADS, Altering, Ways
from parity.torch_impl.external.dropped import DROPPING, Drops

# With so many operands each order is tried, with more the reverse and exchanges of two neighbours.
_ALL_ORDERS = 3
_AXES_OF_SEQUENCES = 3  # batch, time, channels
Function = Callable[..., Any]


@contextmanager
def altered(model: Any, wanted: Mapping[int, str], visited: Callable[[], int]) -> Iterator[Altering]:
    """Have some calls of a pass made otherwise; the arguments are those of `Altering`."""
    altering = Altering(wanted, visited)
    with _Functions(altering, model):
        yield altering


class _Functions(TorchFunctionMode):
    def __init__(self, altering: Altering, model: Any) -> None:
        super().__init__()
        self._altering, self._model = altering, model
        self._drops = Drops()
        # The latest function's result, name, input and call; and what was to be normalised, with the norm that is due
        # behind the next function.
        self._function: tuple[Tensor, str, Tensor, Function] | None = None
        self._due: tuple[Tensor, Function] | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        stock = partial(func, *args, **kwargs)
        name = getattr(func, "__name__", "").strip("_")
        altering = self._altering
        if altering.over:
            return stock()
        if func in DROPPING:
            return self._drops.call(altering, name, func, args, kwargs, self._model.training)
        family = _FAMILIES.get(name)
        ways = _apart(func, args, kwargs)
        ways |= family(name, func, args, kwargs) if family is not None else {}
        if name in _SUMS:
            ways |= _other_operands(func, args, kwargs, altering.results)
        ways |= self._drops.moved_behind(name, func, args, kwargs)
        given = _tensors(args[:1])
        if name in _NORMS and given:
            ways |= self._moved(partial(func, **kwargs), args)
        before = given[0].clone() if name in _ACTIVATIONS and given else None
        result = altering.call(name, ways, stock) if ways else stock()
        if before is not None:
            if self._due is not None and _same(before, self._due[0]):
                result = self._due[1](result)
            self._function = result, name, before, lambda x: func(x, *args[1:], **kwargs)
        if isinstance(result, Tensor) and result.is_floating_point() and name not in _COPIES:
            altering.results.append((name, result))
            self._drops.latest = (name, func, args, kwargs, result)
        return result

    def _moved(self, norm: Function, args: Any) -> Ways:
        """A norm on the other side of the function beside it."""
        ways: Ways = {}
        if self._function is not None and _same(args[0], self._function[0]):
            _, name, before, function = self._function
            text = f"comes after {name}, and before it is right"
            ways[f"moved before {name}"] = text, lambda: function(norm(before, *args[1:]))

        def postponed() -> Tensor:
            kept = args[0].clone()
            self._due = kept, lambda x: norm(x, *args[1:])
            return kept

        text = "comes before the function behind it, and after it is right"
        return ways | {"moved behind": (text, postponed)}


def _same(tensor: Tensor, other: Tensor) -> bool:
    """Whether one is the other, or a copy of it that a tap has made."""
    return tensor is other or (tensor.shape == other.shape and torch.equal(tensor, other))


def _tensors(args: Any) -> list[Tensor]:
    return [value for value in args if isinstance(value, Tensor)]


def _apart(func: Function, args: Any, kwargs: Any) -> Ways:
    """With its input kept as it is, of a call that changes it in place."""
    name = getattr(func, "__name__", "")
    in_place = kwargs.get("inplace") is True or (name in _ACTIVATIONS and len(args) > 1 and args[-1] is True)
    in_place |= name.rstrip("_") != name and (not name.startswith("__") or name in _IN_PLACE)
    if not in_place or not args or not isinstance(args[0], Tensor):
        return {}
    text = "changes its input in place, which another call reads"
    return {"in place": (text, lambda: func(args[0].clone(), *args[1:], **kwargs))}


def _joined(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """Operands in another order."""
    tensors = list(args[0] if args else kwargs.get("tensors", ()))
    count = len(tensors)
    orders = list(itertools.permutations(range(count)))[1:] if count <= _ALL_ORDERS else []
    if not orders:
        orders = [tuple(reversed(range(count)))]
        for place in range(count - 1):
            order = list(range(count))
            order[place], order[place + 1] = order[place + 1], order[place]
            orders.append(tuple(order))
    rest = {key: value for key, value in kwargs.items() if key != "tensors"}
    reversed_in_time: Ways = {
        f"flip {number + 1}": (
            f"takes operand {number + 1} with axis 1 the other way round: reversed it is right",
            partial(
                func,
                [each.flip(1) if place == number else each for place, each in enumerate(tensors)],
                *args[1:],
                **rest,
            ),
        )
        for number, tensor in enumerate(tensors)
        if tensor.dim() == _AXES_OF_SEQUENCES
    }
    return reversed_in_time | {
        f"order {order}": (
            f"takes its operands in another order: {tuple(number + 1 for number in order)} is right",
            partial(func, [tensors[number] for number in order], *args[1:], **rest),
        )
        for order in orders
    }


def _computed(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """Arithmetic of two operands: exchanged, or one of them alone."""
    if kwargs or len(args) != 2:
        return {}
    tensors = _tensors(args)
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


_SUMS = ("add", "radd", "iadd")
_NORMS = ("batch_norm", "layer_norm", "group_norm", "rms_norm")
_ACTIVATIONS = (
    *("relu", "relu6", "leaky_relu", "elu", "selu", "gelu", "silu", "tanh", "sigmoid", "softplus"),
    *("hardswish", "hardsigmoid"),
)
# They compute nothing; taps make some, too.
_COPIES = ("clone", "detach", "to", "requires_grad", "contiguous", "get", "from_numpy")


def _other_operands(func: Function, args: Any, kwargs: Any, results: Iterable[tuple[str, Any]]) -> Ways:
    """A sum of what was computed at another place before it."""
    ways: Ways = {}
    if kwargs or len(args) != 2 or len(_tensors(args)) != 2:
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


def _divided(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """Parts in the other order."""
    text = "gives its parts in an order that is not Keras's: the reverse is right"
    return {"reverse": (text, lambda: tuple(reversed(func(*args, **kwargs))))}


def _with_axis(place: int, name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """Along another axis than that of the batch; `place` of its argument."""
    key = "dim" if "dim" in kwargs or "axis" not in kwargs else "axis"
    axis = kwargs.get(key, args[place] if len(args) > place else None)
    given = args[0] if args else kwargs.get("input")
    if not isinstance(given, Tensor):
        return {}
    ways: Ways = _over_other_axes(name, func, given, axis, args[1:], kwargs)
    if name in ("softmax", "log_softmax", "normalize"):
        ways["absent"] = ("is left out by Keras", lambda: given.clone())
    if not isinstance(axis, int) or isinstance(axis, bool):
        return ways
    if name in _REDUCTIONS:
        keep = bool(kwargs.get("keepdim", args[place + 1] if len(args) > place + 1 else False))
        for other, reduced in _REDUCTIONS.items():
            if other != name:
                text = f"reduces axis {axis}, and {other} in its place is right"
                ways[other] = (text, partial(reduced, given, axis, keep))
    for other in range(1, given.dim()):
        if other == axis % given.dim():
            continue
        if key in kwargs:
            call = partial(func, *args, **{**kwargs, key: other})
        else:
            call = partial(func, *args[:place], other, *args[place + 1 :], **kwargs)
        ways[f"axis {other}"] = (f"works along axis {axis}, and axis {other} is right", call)
    return ways


_REDUCING = ("mean", "sum", "amax", "amin", "logsumexp", "var", "std")
# In the order of their arguments, of those that are given by their places.
_ARGUMENTS = ("dim", "keepdim")


def _over_other_axes(
    name: str, func: Function, given: Tensor, axis: Any, args: Any, kwargs: Mapping[str, Any]
) -> Ways:
    """A reduction over other axes; where its result is broadcast, or no axis of the batch is left, with these kept."""
    rank = given.dim()
    if name not in _REDUCING or isinstance(axis, bool) or len(args) > len(_ARGUMENTS) or rank < 2:
        return {}
    if name in ("var", "std") and len(args) > 1:  # by place it is another argument
        return {}
    told = dict(zip(_ARGUMENTS, args, strict=False)) | kwargs
    keep = bool(told.get("keepdim", told.get("keepdims", False)))
    rest = {key: value for key, value in told.items() if key not in (*_ARGUMENTS, "axis", "keepdims")}
    all_axes = tuple(range(rank))
    chosen = (axis,) if isinstance(axis, int) else tuple(axis or all_axes)
    now = tuple(sorted(each % rank for each in chosen))
    others = [each for size in range(1, rank) for each in itertools.combinations(all_axes[1:], size)]
    ways: Ways = {}
    for other in [*others, all_axes]:
        # Another number of axes fits what follows only where the result is broadcast.
        kept = {True} if keep or 0 in now else set()
        if not keep and (now == all_axes or len(other) == len(now)):
            kept.add(False)
        for with_ones in sorted(kept, reverse=True):
            plain = len(now) == len(other) == 1 and with_ones == keep and isinstance(axis, int)
            if (other == now and with_ones == keep) or plain:
                continue
            what = "all axes, that of the batch too" if now == all_axes else f"the axes {now}"
            right = "all axes" if other == all_axes else f"the axes {other}"
            more = " with keepdim=True" if with_ones and not keep else ""
            text = f"reduces {what}, and {right}{more} are right"
            call = partial(func, given, dim=other, keepdim=with_ones, **rest)
            ways[f"axes {other}{' kept' if with_ones else ''}"] = (text, call)
    return ways


def _element(given: Tensor, axis: int, keep: bool, place: int) -> Tensor:
    chosen = given.select(axis, place)
    return chosen.unsqueeze(axis) if keep else chosen


_REDUCTIONS: dict[str, Callable[[Tensor, int, bool], Tensor]] = {
    "mean": torch.mean,
    "sum": torch.sum,
    "amax": torch.amax,
    "the first element": partial(_element, place=0),
    "the last element": partial(_element, place=-1),
}


def _reshaped(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """The same elements, in the order that they have with the channels at the other end."""
    given = args[0] if args else None
    if not isinstance(given, Tensor):
        return {}
    rest, ways = args[1:], {}
    if given.dim() > 2:
        for text, source, target in (("last", 1, -1), ("first", -1, 1)):
            moved = partial(torch.movedim, given, source, target)
            ways[f"channels {text}"] = (
                f"takes the elements of {tuple(given.shape)} as they lie, and the order with axis {source} moved to"
                f" {target} is right",
                lambda moved=moved: func(moved().contiguous(), *rest, **kwargs),
            )
    result = func(*args, **kwargs)
    ways |= _with_heads(given, tuple(result.shape))
    if result.dim() > max(2, given.dim()):
        shape = tuple(result.shape)
        for text, wanted, source, target in (
            ("last", (shape[0], *shape[2:], shape[1]), -1, 1),
            ("first", (shape[0], shape[-1], *shape[1:-1]), 1, -1),
        ):
            ways[f"result channels {text}"] = (
                f"gives {shape} as the elements lie, and {wanted} with axis {source} moved to {target} is right",
                lambda wanted=wanted, source=source, target=target: torch.movedim(
                    given.reshape(wanted), source, target
                ),
            )
    return ways


def _with_heads(given: Tensor, result: tuple[int, ...]) -> Ways:
    """Heads split off channels, or joined to them, with the positions and the heads exchanged as that needs."""
    shape = tuple(given.shape)
    told = "mixes positions and heads, since it only reshapes {} to {}: {} is right"
    if len(shape) == 3 and len(result) in (3, 4):
        batch, positions, channels = shape
        if result[-2] != positions or not result[-1] or channels % result[-1]:
            return {}
        heads = channels // result[-1]
        if heads == 1 or result[:-2] not in ((batch, heads), (batch * heads,)):
            return {}
        split = (batch, positions, heads, channels // heads)
        text = told.format(shape, result, f"reshape{split}.transpose(1, 2)")
        return {HEADS: (text, lambda: given.reshape(split).transpose(1, 2).reshape(result))}
    if len(shape) in (3, 4) and len(result) == 3:
        batch, positions, channels = result
        if shape[-2] != positions or not shape[-1] or channels % shape[-1]:
            return {}
        heads = channels // shape[-1]
        if heads == 1 or shape[:-2] not in ((batch, heads), (batch * heads,)):
            return {}
        parted = (batch, heads, positions, channels // heads)
        text = told.format(shape, result, "transpose(1, 2) before it")
        return {HEADS: (text, lambda: given.reshape(parted).transpose(1, 2).reshape(result))}
    return {}


def _resized(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """Interpolated with other corners, or by another method."""
    names = ("input", "size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias")
    given = dict(zip(names, args, strict=False)) | kwargs
    ways: Ways = {}
    for mode, corners in (("nearest", None), ("bilinear", False), ("bilinear", True), ("bicubic", False)):
        if (given.get("mode", "nearest"), given.get("align_corners") or None) == (mode, corners or None):
            continue
        text = f"interpolates by {mode}" + (f" with align_corners {corners}" if corners is not None else "")
        changed = {**given, "mode": mode, "align_corners": corners}
        ways[f"{mode} {corners}"] = (f"does not do what Keras does: it {text}", partial(func, **changed))
    return ways


def _padded(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """As much at the other end of each axis."""
    given = dict(zip(("input", "pad", "mode", "value"), args, strict=False)) | kwargs
    pads = list(given["pad"])
    other = [side for pair in zip(pads[1::2], pads[::2], strict=True) for side in pair]
    if other == pads:
        return {}
    text = f"pads by {tuple(pads)}, and {tuple(other)}, the other side, is right"
    return {"other side": (text, partial(func, **{**given, "pad": other}))}


def _indexed(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """As many elements from the other end."""
    given, index = args
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(part, Tensor) for part in parts):
        return {}
    axes = given.dim()
    other, axis = [], 0
    for number, part in enumerate(parts):
        if part is Ellipsis:
            axis = axes - len([p for p in parts[number + 1 :] if p is not None])
            other.append(part)
            continue
        changed = part
        if isinstance(part, slice):
            size = given.shape[axis]
            start, stop, step = part.indices(size)
            length = len(range(start, stop, step))
            if step == 1 and length < size and axis:
                changed = slice(size - stop, size - start)
            elif step > 1 and axis:
                changed = slice(0 if start else 1, None, step)
        elif isinstance(part, int) and not isinstance(part, bool) and axis:
            changed = -1 - part
        axis += part is not None
        other.append(changed)
    if other == list(parts):
        return {}
    text = "takes the elements of one end, and those of the other end are right"
    ways: Ways = {"other end": (text, lambda: func(given, tuple(other)))}
    ways |= _both_ends(given, parts)
    chosen = [number for number, part in enumerate(parts) if isinstance(part, int) and number]
    if len(chosen) == 1 and all(part == slice(None) for part in parts[: chosen[0]]):
        kept = tuple(slice(None) if number == chosen[0] else part for number, part in enumerate(parts))
        for reduction in ("mean", "amax"):
            ways[reduction] = (
                f"takes one element of axis {chosen[0]}, and the {reduction} over it is right",
                lambda reduction=reduction: _REDUCTIONS[reduction](func(given, kept), chosen[0], False),
            )
    return ways


def _both_ends(given: Tensor, parts: tuple[Any, ...]) -> Ways:
    """Of the last step of two directions, the second as it is at the first step, where it ends."""
    steps = [number for number, part in enumerate(parts) if isinstance(part, int)]
    if given.dim() != _AXES_OF_SEQUENCES or steps not in ([0], [1]) or given.shape[-1] % 2:
        return {}
    (axis,) = steps
    others = [part for number, part in enumerate(parts) if number != axis]
    if parts[axis] % given.shape[axis] != given.shape[axis] - 1 or any(
        part != slice(None) and part is not Ellipsis for part in others
    ):
        return {}
    half = given.shape[-1] // 2
    text = (
        f"takes the last step of both directions: of the last {half} channels, the direction that runs backward, the"
        " first step is right, where it ends"
    )
    return {
        "both ends": (
            text,
            lambda: torch.cat(
                [given.select(axis, -1)[..., :half], given.select(axis, 0)[..., half:]], dim=-1
            ),
        )
    }


def _selected(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """With the mask inverted, or without it."""
    mask = 0 if name == "where" else 1
    if len(args) != 3 or not isinstance(args[mask], Tensor) or args[mask].dtype != torch.bool:
        return {}
    inverted = [~each if place == mask else each for place, each in enumerate(args)]
    ways: Ways = {"inverted": ("takes the inverted mask", partial(func, *inverted))}
    for kept in (1, 2) if name == "where" else (0,):
        if isinstance(args[kept], Tensor):
            text = "applies a mask that Keras does not"
            ways[f"unmasked {kept}"] = (text, lambda kept=kept: args[kept] + torch.zeros_like(func(*args)))
    return ways


def _compared(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """A mask that is inverted where it is made."""
    given = _tensors(args)
    if name in ("invert", "bitwise_not") and (not given or given[0].dtype != torch.bool):
        return {}
    return {"inverted": ("gives the inverted mask", lambda: ~func(*args, **kwargs))}


def _attended(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """Attention with other masks."""
    places = {"scaled_dot_product_attention": {"attn_mask": 3}}.get(name, {})
    given = dict(kwargs)
    given |= {key: args[place] for key, place in places.items() if len(args) > place}
    head = args[: min(places.values(), default=len(args))]
    ways: Ways = {}
    for key in ("attn_mask", "key_padding_mask"):
        mask = given.get(key)
        if mask is None:
            continue
        changed = partial(func, *head)
        ways[f"no {key}"] = (
            f"applies {key}, and Keras has no such mask",
            partial(changed, **{**given, key: None}),
        )
        if mask.dtype == torch.bool:
            ways[f"inverted {key}"] = (
                f"takes {key} inverted",
                partial(changed, **{**given, key: ~mask}),
            )
    if name == "scaled_dot_product_attention" and given.get("attn_mask") is None:
        causal = bool(given.get("is_causal"))
        text = (
            "looks at later positions too, and Keras does not"
            if not causal
            else "is causal, and Keras's is not"
        )
        ways["causal"] = (text, partial(func, *head, **{**given, "is_causal": not causal}))
    return ways


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


def _activated(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
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


def _normalized(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
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


def _multiplied(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """Attention's scores, scaled or not."""
    tensors = _tensors(args)
    if len(tensors) != len(args) or len(tensors) != 2 or tensors[0].dim() < _AXES_OF_SEQUENCES:
        return {}
    scale = tensors[0].shape[-1] ** -0.5
    return {
        "scaled": (
            f"is not scaled, and Keras divides by the square root of {tensors[0].shape[-1]}",
            lambda: func(*args, **kwargs) * scale,
        )
    }


def _rolled(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """Along the same axes the other way."""
    given = dict(zip(("input", "shifts", "dims"), args, strict=False)) | kwargs
    shifts = given["shifts"]
    other = [-shift for shift in shifts] if isinstance(shifts, (tuple, list)) else -shifts
    text = f"shifts by {shifts}, and {tuple(other) if isinstance(other, list) else other} is right"
    back = partial(torch.roll, **{**given, "shifts": other})
    return {"back": (text, back), **_flipped(name, func, args, kwargs)}


def _flipped(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    return {"absent": ("is left out by Keras", lambda: args[0].clone())}


_IN_PLACE = ("__iadd__", "__isub__", "__imul__", "__itruediv__")

_FAMILIES: dict[str, Callable[[str, Function, Any, Any], Ways]] = {
    **dict.fromkeys(("cat", "concat", "concatenate", "stack", "hstack"), _joined),
    **dict.fromkeys(("sub", "subtract", "rsub", "div", "truediv", "true_divide", "rtruediv"), _computed),
    **dict.fromkeys(("add", "mul", "radd", "rmul", "iadd", "imul", "multiply"), _computed),
    **dict.fromkeys(
        ("softmax", "log_softmax", "mean", "sum", "amax", "amin", "cumsum", "var", "std", "logsumexp"),
        partial(_with_axis, 1),
    ),
    "normalize": partial(_with_axis, 2),
    **dict.fromkeys(("flatten", "reshape", "view", "unflatten"), _reshaped),
    "interpolate": _resized,
    "pad": _padded,
    "getitem": _indexed,
    **dict.fromkeys(("masked_fill", "where"), _selected),
    **dict.fromkeys(("eq", "ne", "gt", "lt", "ge", "le", "logical_not", "invert", "bitwise_not"), _compared),
    **dict.fromkeys(("scaled_dot_product_attention", "multi_head_attention_forward"), _attended),
    **dict.fromkeys(_ACTIVATIONS, _activated),
    **dict.fromkeys(_NORMS, _normalized),
    "flip": _flipped,
    "roll": _rolled,
    **dict.fromkeys(("matmul", "bmm"), _multiplied),
    **dict.fromkeys(("chunk", "split", "tensor_split", "unbind"), _divided),
}
