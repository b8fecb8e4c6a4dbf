"""Calls that reduce: over other axes, by another reduction, over what is no padding; softmax along another axis."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from parity.common.external.process.altering import Ways
from parity.torch_impl.alterations.base import Function

_REDUCING = ("mean", "sum", "amax", "amin", "logsumexp", "var", "std")

# What is taken for one another over all elements.
_OTHER: Mapping[str, Function] = {"mean": torch.sum, "sum": torch.mean}

# In the order of their arguments, of those that are given by their places.
_ARGUMENTS = ("dim", "keepdim")

_MOST_MASKS = 6


def with_axis(place: int, name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """Along another axis than that of the batch; `place` of its argument."""
    key = "dim" if "dim" in kwargs or "axis" not in kwargs else "axis"
    axis = kwargs.get(key, args[place] if len(args) > place else 1 if name == "normalize" else None)
    given = args[0] if args else kwargs.get("input")
    if not isinstance(given, Tensor):
        return {}
    if axis is None and name in ("softmax", "log_softmax"):
        axis = 0 if given.dim() in (0, 1, 3) else 1  # as torch chooses it, and warns
    ways: Ways = _over_other_axes(name, func, given, axis, args[1:], kwargs)
    if name in ("softmax", "log_softmax", "normalize"):
        ways["absent"] = ("is left out by Keras", lambda: given.clone())
    several = isinstance(axis, tuple | list)
    if axis is None and name in _OTHER:
        other = _OTHER[name]
        ways[other.__name__] = (
            f"reduces all elements, and their {other.__name__} is right",
            partial(other, given),
        )
        if given.dim() > 1:
            text = f"reduces all elements, and the {other.__name__} of each sample is right"
            ways[f"{other.__name__} of samples"] = (text, partial(other, given, tuple(range(1, given.dim()))))
    if (not isinstance(axis, int) or isinstance(axis, bool)) and not several:
        return ways
    if name in REDUCTIONS:
        keep = bool(kwargs.get("keepdim", args[place + 1] if len(args) > place + 1 else False))
        for other, reduced in REDUCTIONS.items():
            if other != name and not (several and "element" in other):
                text = f"reduces axis {axis}, and {other} in its place is right"
                ways[other] = (text, partial(reduced, given, axis, keep))
    if several:
        return ways
    # A parameter has no axis of the batch.
    for other in range(0 if isinstance(given, Parameter) else 1, given.dim()):
        if other == axis % given.dim():
            continue
        if key in kwargs or len(args) <= place:
            call = partial(func, *args, **{**kwargs, key: other})
        else:
            call = partial(func, *args[:place], other, *args[place + 1 :], **kwargs)
        ways[f"axis {other}"] = (f"works along axis {axis}, and axis {other} is right", call)
    return ways


def running(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """A sum or a product of what comes before each element alone, or from the other end; or along another axis."""
    ways = with_axis(1, name, func, args, kwargs)
    given = args[0] if args else kwargs["input"]
    axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if not isinstance(axis, int) or not given.is_floating_point():
        return ways
    start = torch.zeros_like if name == "cumsum" else torch.ones_like

    def of_those_before(given: Tensor) -> Tensor:
        moved = torch.cat(
            [start(given.narrow(axis, 0, 1)), given.narrow(axis, 0, given.shape[axis] - 1)], axis
        )
        result: Tensor = func(moved, axis)
        return result

    text = "counts each element itself, and those before it alone are right"
    ways["exclusive"] = (text, lambda: of_those_before(given))
    back = "runs from the first element, and from the last one is right"
    ways["reverse"] = (back, lambda: func(given.flip(axis), axis).flip(axis))
    return ways


def _over_other_axes(
    name: str, func: Function, given: Tensor, axis: Any, args: Any, kwargs: Mapping[str, Any]
) -> Ways:
    """A reduction over other axes; where its result is broadcast, or no axis of the batch is left, with these kept."""
    rank = given.dim()
    if name not in _REDUCING or isinstance(axis, bool) or len(args) > len(_ARGUMENTS) or rank < 2:
        return {}
    if name in ("var", "std") and (len(args) > 1 or "unbiased" in kwargs):  # by place it is another argument
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
        for with_ones in sorted(kept, reverse=now != all_axes):
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


REDUCTIONS: dict[str, Callable[[Tensor, int, bool], Tensor]] = {
    "mean": torch.mean,
    "sum": torch.sum,
    "amax": torch.amax,
    "the first element": partial(_element, place=0),
    "the last element": partial(_element, place=-1),
}


def extreme(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """The largest or the smallest element over other axes, where all elements were compared or those along one axis."""
    given = args[0] if args else kwargs.get("input")
    rest = {**dict(zip(("dim", "keepdim"), args[1:], strict=False)), **kwargs}
    rest.pop("input", None)
    if not isinstance(given, Tensor) or isinstance(rest.get("dim"), Tensor) or "other" in rest:
        return {}
    if "dim" not in rest:
        reduced = {"max": torch.amax, "min": torch.amin}[name]
        return _over_other_axes(reduced.__name__, reduced, given, None, (), {})
    axis = rest["dim"]
    return {
        f"axis {other}": (
            f"works along axis {axis}, and axis {other} is right",
            partial(func, given, **{**rest, "dim": other}),
        )
        for other in range(1, given.dim())
        if other != axis % given.dim()
    }


def spread(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """A variance or a deviation with the other divisor; over other axes, too, where it is a number of its own."""
    ways = {} if name.endswith("_mean") else with_axis(1, name, func, args, kwargs)
    given = args[0] if args else kwargs.get("input")
    if not isinstance(given, Tensor):
        return ways
    result = func(*args, **kwargs)
    first = result[0] if isinstance(result, tuple) else result
    count = given.numel() // max(first.numel(), 1)
    flag = next((each for each in args[1:3] if isinstance(each, bool)), kwargs.get("unbiased"))
    less = kwargs.get("correction", 1 if flag is None else int(flag))
    if count < 2 or less not in (0, 1):
        return ways
    factor = (count - 1) / count if less else count / (count - 1)
    factor = math.sqrt(factor) if name.startswith("std") else factor

    def corrected() -> Any:
        again = func(*args, **kwargs)
        return (factor * again[0], *again[1:]) if isinstance(again, tuple) else factor * again

    divisors = ("n - 1", "n") if less else ("n", "n - 1")
    text = "divides by {}, the number of elements{}, and {} is right"
    ways["other divisor"] = (text.format(divisors[0], " less one" if less else "", divisors[1]), corrected)
    return ways


def length(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """A norm without its root."""
    return {
        "squared": (
            "gives the root of a sum of squares, and the sum is right",
            lambda: func(*args, **kwargs) ** 2,
        )
    }


def pooled(name: str, func: Function, args: Any, kwargs: Any, padding: tuple[Tensor, Tensor] | None) -> Ways:
    """A mean of windows that counts padding, or does not.

    padding: where the input was padded with zeros before, ones in its shape, zero where it is padding.
    """
    given = args[0] if args else kwargs["input"]
    text = "counts padding in its mean, and a mean of the other elements is right"
    if padding is not None:
        ones = padding[1]
        return {"count": (text, lambda: func(*args, **kwargs) / func(ones, *args[1:], **kwargs))}
    place = {"kernel_size": 1, "stride": 2, "padding": 3, "ceil_mode": 4, "count_include_pad": 5}
    named = {key: args[at] for key, at in place.items() if len(args) > at} | {
        key: value for key, value in kwargs.items() if key != "input"
    }
    if not named.get("padding") or named.get("divisor_override"):
        return {}
    counts = bool(named.get("count_include_pad", True))
    text = text if counts else "leaves padding out of its mean, and counting it is right"
    return {"count": (text, partial(func, given, **{**named, "count_include_pad": not counts}))}


def windowed(name: str, func: Function, args: Any, kwargs: Any) -> Ways:
    """Means in place of the largest elements of windows, or the reverse."""
    exchanged = name.replace("max", "avg") if "max" in name else name.replace("avg", "max")
    text = f"is there, and {exchanged} is right"
    whole = {
        key: value for key, value in kwargs.items() if key not in ("count_include_pad", "divisor_override")
    }
    return {exchanged: (text, lambda: getattr(F, exchanged)(*args, **whole))}


class Masks:
    """What a pass works with that may say which positions of a sample are padding: booleans, and ids that are 0 there."""

    def __init__(self) -> None:
        # In words, and (batch, positions).
        self._found: list[tuple[str, Tensor]] = []

    def gather(self, tensors: Sequence[Tensor]) -> None:
        """Keep those of a call's operands that have a number for each position."""
        for each in tensors:
            whole = not (each.is_floating_point() or each.is_complex())
            if not whole or each.dim() < 2 or each.numel() != each.shape[0] * each.shape[-1]:
                continue
            flat = each.detach().reshape(len(each), -1)
            kind = "the mask is true" if each.dtype == torch.bool else "the ids are not 0"
            self._keep(kind, flat if each.dtype == torch.bool else flat != 0)
            if each.dtype == torch.bool:
                self._keep("the mask is false", ~flat)

    def _keep(self, kind: str, mask: Tensor) -> None:
        known = any(mask.shape == other.shape and torch.equal(mask, other) for _, other in self._found)
        if not known and len(self._found) < _MOST_MASKS and mask.any() and not mask.all():
            self._found.append((kind, mask))

    def along(self, given: Tensor, axis: int) -> Iterator[tuple[str, Tensor]]:
        """Yield masks of the positions along an axis of a tensor, with its rank."""
        for kind, mask in self._found:
            if tuple(mask.shape) == (given.shape[0], given.shape[axis]):
                yield kind, mask.reshape([s if a in (0, axis) else 1 for a, s in enumerate(given.shape)])

    def ways(self, name: str, func: Function, args: Any, kwargs: Any) -> Ways:
        """The reduction of what a mask keeps."""
        given = args[0] if args else kwargs.get("input")
        axis = kwargs.get("dim", kwargs.get("axis", args[1] if len(args) > 1 else None))
        if isinstance(axis, tuple | list) and len(axis) == 1:
            (axis,) = axis
        plain = isinstance(axis, int) and not isinstance(axis, bool)
        if not isinstance(given, Tensor) or not given.is_floating_point() or not plain or given.dim() < 2:
            return {}
        axis %= given.dim()
        keep = bool(kwargs.get("keepdim", args[2] if len(args) > 2 else False))
        ways: Ways = {}
        for number, (kind, mask) in enumerate(self.along(given, axis) if axis else ()):

            def reduced(mask: Tensor = mask) -> Any:
                if name in ("mean", "sum"):
                    total = (given * mask).sum(axis, keepdim=keep)
                    return total / mask.sum(axis, keepdim=keep).clamp(min=1) if name == "mean" else total
                return func(given.masked_fill(~mask, -math.inf), *args[1:], **kwargs)

            text = f"works on all positions along axis {axis}, and on those alone where {kind} is right"
            ways[f"masked {number}"] = text, reduced
        return ways
