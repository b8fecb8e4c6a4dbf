"""Calls that arrange elements: in another order, from the other end, in the other layout."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from parity.common.external.process.altering import HEADS, MANY, Ways
from parity.torch_impl.alterations.arithmetic import changes_in_place
from parity.torch_impl.alterations.base import AXES_OF_SEQUENCES, Function
from parity.torch_impl.alterations.reductions import REDUCTIONS

# With so many operands each order is tried, with more the reverse and exchanges of two neighbours.
_ALL_ORDERS = 3
# Of what is divided, such as the gates of a cell, each order of so many parts.
_MOST_PARTS = 4


def joined(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
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
        if tensor.dim() == AXES_OF_SEQUENCES
    }
    dim = kwargs.get("dim", args[1] if len(args) > 1 else 0)
    rank = tensors[0].dim() if tensors and name != "stack" else 0
    last = rank > 0 and isinstance(dim, int) and dim % rank == rank - 1
    interleaved = _interleaved(tensors) if last else {}
    return (
        reversed_in_time
        | interleaved
        | {
            f"order {order}": (
                f"takes its operands in another order: {tuple(number + 1 for number in order)} is right",
                partial(func, [tensors[number] for number in order], *args[1:], **rest),
            )
            for order in orders
        }
    )


def _interleaved(tensors: Sequence[Tensor]) -> Ways:
    """Neighbours of one length interleaved along the last axis, element by element or some at a time."""

    def by_turns(start: int, end: int, block: int) -> Tensor:
        parts = [each.unflatten(-1, (each.shape[-1] // block, block)) for each in tensors[start:end]]
        joined = torch.stack(parts, dim=-2).flatten(-3)
        return torch.cat([*tensors[:start], joined, *tensors[end:]], dim=-1)

    ways: Ways = {}
    for start, end in itertools.combinations(range(len(tensors) + 1), 2):
        lengths = {each.shape[-1] for each in tensors[start:end]}
        (length, *others) = lengths
        if others or not 1 < end - start <= _MOST_PARTS:
            continue
        which = f"{start + 1} to {end}"
        for block in (each for each in range(1, length) if length % each == 0):
            text = f"puts its operands one behind the other, and {which} interleaved, {block} at a time, are right"
            ways[f"by turns of {block}, {which}"] = (text, partial(by_turns, start, end, block))
    return ways


def divided(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """Parts in the other order."""
    text = "gives its parts in an order that is not Keras's: the reverse is right"
    ways: Ways = {"reverse": (text, lambda: tuple(reversed(func(*args, **kwargs))))}
    count = len(func(*args, **kwargs))
    for order in itertools.permutations(range(count)) if 2 < count <= _MOST_PARTS else ():
        if order not in (tuple(range(count)), tuple(reversed(range(count)))):
            which = tuple(number + 1 for number in order)
            text = f"gives its parts in an order that is not Keras's: {which} is right"
            ways[f"{MANY} order {order}"] = (text, partial(_in_order, order, func, args, kwargs))
    return ways


def _in_order(order: Sequence[int], func: Function, args: Any, kwargs: Any) -> tuple[Any, ...]:
    parts = func(*args, **kwargs)
    return tuple(parts[number] for number in order)


def reshaped(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
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
    ways |= _parts_of_the_last(given, tuple(result.shape))
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


def _parts_of_the_last(given: Tensor, result: tuple[int, ...]) -> Ways:
    """The last axis split in two, or two joined to it, with the two exchanged: pairs side by side, or halves."""
    shape = tuple(given.shape)
    text = f"reshapes {shape} to {result}, and with the two parts of the last axis exchanged is right"
    if len(result) == len(shape) + 1 and shape[:-1] == result[:-2] and min(result[-2:]) > 1:
        split = (*result[:-2], result[-1], result[-2])
        return {"parts exchanged": (text, lambda: given.reshape(split).transpose(-1, -2).contiguous())}
    if len(shape) == len(result) + 1 and result[:-1] == shape[:-2] and min(shape[-2:]) > 1:
        return {"parts exchanged": (text, lambda: given.transpose(-1, -2).reshape(result))}
    return {}


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


def resized(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
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


def padded(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """As much at the other end of each axis."""
    given = dict(zip(("input", "pad", "mode", "value"), args, strict=False)) | kwargs
    pads = list(given["pad"])
    other = [side for pair in zip(pads[1::2], pads[::2], strict=True) for side in pair]
    if other == pads:
        return {}
    text = f"pads by {tuple(pads)}, and {tuple(other)}, the other side, is right"
    return {"other side": (text, partial(func, **{**given, "pad": other}))}


def indexed(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """As many elements from the other end."""
    given, index = args
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(part, Tensor) for part in parts):
        return _beside(given, parts)
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
    changed_parts = [number for number, part in enumerate(parts) if other[number] is not part]
    for number in changed_parts if len(changed_parts) > 1 else ():
        one = (*parts[:number], other[number], *parts[number + 1 :])
        ways[f"other end of axis {number}"] = (
            f"takes the elements of one end of axis {number}, and those of the other end are right",
            partial(func, given, one),
        )
    ways |= _both_ends(given, parts)
    chosen = [number for number, part in enumerate(parts) if isinstance(part, int) and number]
    if len(chosen) == 1 and all(part == slice(None) for part in parts[: chosen[0]]):
        kept = tuple(slice(None) if number == chosen[0] else part for number, part in enumerate(parts))
        for reduction in ("mean", "amax"):
            ways[reduction] = (
                f"takes one element of axis {chosen[0]}, and the {reduction} over it is right",
                lambda reduction=reduction: REDUCTIONS[reduction](func(given, kept), chosen[0], False),
            )
    return ways


def _beside(given: Tensor, parts: tuple[Any, ...]) -> Ways:
    """The elements beside those that a tensor of indices names."""
    ways: Ways = {}
    for place, part in enumerate(parts):
        whole = isinstance(part, Tensor) and not part.is_floating_point() and part.dtype != torch.bool
        if not place or not whole or any(each is Ellipsis or each is None for each in parts[:place]):
            continue
        size = given.shape[place]
        for by, text in ((-1, "before"), (1, "behind")):
            moved = (*parts[:place], (part + by).clamp(0, size - 1), *parts[place + 1 :])
            told = f"takes elements of axis {place} by their indices, and those one {text} are right"
            ways[f"one {text}"] = (told, partial(operator.getitem, given, moved))
    return ways


def _both_ends(given: Tensor, parts: tuple[Any, ...]) -> Ways:
    """Of the last step of two directions, the second as it is at the first step, where it ends."""
    steps = [number for number, part in enumerate(parts) if isinstance(part, int)]
    if given.dim() != AXES_OF_SEQUENCES or steps not in ([0], [1]) or given.shape[-1] % 2:
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


def repeated(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """Each element several times in place of all of them several times, or the other way round."""
    given = args[0] if args else kwargs.get("input")
    if name == "repeat_interleave":
        told = dict(zip(("input", "repeats", "dim"), args, strict=False)) | kwargs
        times, axis = told.get("repeats"), told.get("dim")
        if not isinstance(given, Tensor) or not isinstance(times, int) or not isinstance(axis, int):
            return {}
        text = (
            f"repeats each element of axis {axis} {times} times, and all of them one after another is right"
        )
        return {"one after another": (text, lambda: torch.cat([given] * times, dim=axis))}
    sizes = args[1] if len(args) > 1 and isinstance(args[1], tuple | list) else args[1:]
    several = [place for place, size in enumerate(sizes) if size != 1]
    if kwargs or not isinstance(given, Tensor) or len(sizes) != given.dim() or len(several) != 1:
        return {}
    axis, times = several[0], sizes[several[0]]
    if given.shape[axis] == 1:
        return {}
    text = f"repeats the elements of axis {axis} one after another, and each {times} times is right"
    return {"each": (text, lambda: given.repeat_interleave(times, dim=axis))}


def transposed(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """Axes in another order that gives the same shape."""
    given = args[0] if args else kwargs.get("input")
    if (
        not isinstance(given, Tensor)
        or given.dim() < AXES_OF_SEQUENCES
        or changes_in_place(func, args, kwargs)
    ):
        return {}
    result = func(*args, **kwargs)
    ways: Ways = {}
    if result.shape == given.shape:
        ways["absent"] = ("exchanges axes, and Keras does not", lambda: given.clone())
    if name != "permute":
        return ways
    now = args[1] if len(args) > 1 and isinstance(args[1], tuple | list) else kwargs.get("dims", args[1:])
    plain = tuple(range(given.dim()))
    for order in itertools.permutations(plain):
        fits = tuple(given.shape[axis] for axis in order) == tuple(result.shape) and order[0] == now[0]
        if fits and order not in (plain, tuple(axis % given.dim() for axis in now)):
            text = f"puts the axes in the order {tuple(now)}, and {order} is right"
            ways[f"order {order}"] = (text, partial(torch.permute, given, order))
    return ways


def shuffled(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """Blocks of pixels from channels in the order in which TensorFlow's depth_to_space takes them."""
    if kwargs or len(args) != 2:
        return {}
    given, factor = args
    channels = given.shape[-3]
    text = "takes channels of one colour together, and those of one pixel together, as depth_to_space does, is right"

    def of_pixels() -> Tensor:
        parted = given.unflatten(-3, (factor * factor, channels // factor**2))
        return func(parted.transpose(-3, -4).reshape(given.shape), factor)

    return {} if channels == factor**2 else {"by pixels": (text, of_pixels)}


def crossed(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """A grid of coordinates with its first two axes in the other order."""
    indexing = kwargs.get("indexing", "ij")
    other = "xy" if indexing == "ij" else "ij"
    text = f"makes a grid with indexing {indexing!r}, and {other!r} is right"
    call = partial(torch.meshgrid, *args, indexing=other)
    alike = [each.shape for each in call()] == [each.shape for each in func(*args, **kwargs)]
    exchanged = "makes grids in an order that is not Keras's: the reverse is right"
    reverse: Ways = {"reverse": (exchanged, lambda: tuple(reversed(func(*args, **kwargs))))}
    return reverse | ({f"indexing {other}": (text, call)} if alike else {})


def bucketed(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """Which bin a value on a boundary belongs to."""
    if len(args) > 2 or "side" in kwargs:
        return {}
    right = not kwargs.get("right", False)
    now, due = ("lower", "upper") if right else ("upper", "lower")
    text = f"puts what equals a boundary into the {now} bin, and the {due} one is right"
    return {"other side": (text, partial(func, *args, **{**kwargs, "right": right}))}


def rolled(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """Along the same axes the other way."""
    given = dict(zip(("input", "shifts", "dims"), args, strict=False)) | kwargs
    shifts = given["shifts"]
    other = [-shift for shift in shifts] if isinstance(shifts, (tuple, list)) else -shifts
    text = f"shifts by {shifts}, and {tuple(other) if isinstance(other, list) else other} is right"
    back = partial(torch.roll, **{**given, "shifts": other})
    return {"back": (text, back), **flipped(name, func, args, kwargs)}


def flipped(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    return {"absent": ("is left out by Keras", lambda: args[0].clone())}


def recurrent(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """The state of the last layer of a recurrent net as it is at the other end of the sequence."""
    ways: Ways = {}
    states = args[1] if isinstance(args[1], tuple) else (args[1],)
    # Of packed sequences the second operand has their lengths.
    if states[0].is_floating_point() and any(bool(state.any()) for state in states):
        zeros = tuple(torch.zeros_like(state) for state in states)
        start = zeros if isinstance(args[1], tuple) else zeros[0]
        text = "starts from states that it is given, and zeros are right"
        ways["from zeros"] = (text, partial(func, args[0], start, *args[2:], **kwargs))
    if (
        kwargs
        or len(args) != 9
        or not isinstance(args[2], tuple | list)
        or args[0].dim() != AXES_OF_SEQUENCES
    ):
        return ways
    both, axis = bool(args[7]), int(bool(args[8]))

    def ended(step: int) -> Any:
        output, hidden, *others = func(*args)
        state = output.select(axis, step)
        last = state[..., state.shape[-1] // 2 :] if both else state
        return (output, torch.cat([hidden[:-1], last[None]]), *others)

    if both:
        text = "gives the state of the direction that runs backward where it ends, at the first step, and the last step is right"
        return ways | {"last step": (text, partial(ended, -1))}
    text = "gives the state at the last step, and the first step is right"
    return ways | {"first step": (text, partial(ended, 0))}
