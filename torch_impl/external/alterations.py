"""Experiments on the functions that a live model calls: with other operands, another axis, another mask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from parity.common.external.process.altering import Altering, Ways
from parity.torch_impl.alterations import arithmetic, arrangement, constants, losses, masks, order, reductions
from parity.torch_impl.alterations.base import Function, same, tensors_of
from parity.torch_impl.external.dropped import DROPPING, Drops

# They compute nothing; taps make some, too.
_COPIES = ("clone", "detach", "to", "requires_grad", "contiguous", "get", "from_numpy")

# What a norm may stand before or behind.
_BESIDE_NORMS = (*arithmetic.ACTIVATIONS, "mean", "amax")

# What padding takes no part in, where a mask says so: reductions, and the weights of attention.
_MASKED = ("mean", "sum", "amax", "max", "softmax", "log_softmax")


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
        self._drops, self._masks, self._order = Drops(), reductions.Masks(), order.Order()
        self._alike = arithmetic.alike(model)
        # What was padded with zeros last, and ones where it is no padding.
        self._padding: tuple[Tensor, Tensor] | None = None
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
        ways = arithmetic.apart(func, args, kwargs)
        ways |= family(name, func, args, kwargs) if family is not None else {}
        if name in _POOLING:
            padding = self._padding
            known = padding is not None and same(args[0] if args else kwargs["input"], padding[0])
            ways |= reductions.pooled(name, func, args, kwargs, padding if known else None)
        if altering.in_loss:
            ways |= losses.counted(name, func, args, kwargs)
        ways |= self._of_many(name, func, args, kwargs, stock)
        self._masks.gather(tensors_of(args))
        if name in _MASKED:
            ways |= self._masks.ways(name, func, args, kwargs)
        ways |= self._drops.moved_behind(name, func, args, kwargs)
        given = tensors_of(args[:1])
        if name in arithmetic.NORMS and given:
            ways |= self._moved(partial(func, **kwargs), args)
        ways |= self._order.ways(name, func, args, kwargs)
        changed = arithmetic.changes_in_place(func, args, kwargs)
        before = given[0].clone() if given and (changed or name in _BESIDE_NORMS) else None
        numbers = constants.numbers_of(name, args, kwargs)
        other = partial(constants.with_number, name, func, args, kwargs)
        result = altering.call(name, ways, stock, numbers, other) if ways or numbers else stock()
        if name == "pad":
            self._padding = _zeros_around(result, args, kwargs)
        self._order.keep(name, func, args if before is None else (before, *args[1:]), kwargs, result)
        if name in arithmetic.RECURRENT:
            altering.results.append(
                (f"{name} (its last states)", result[1] if name != "lstm" else tuple(result[1:]))
            )
        if before is not None and name in _BESIDE_NORMS:
            if self._due is not None and same(before, self._due[0]):
                result = self._due[1](result)
            self._function = result, name, before, lambda x: func(x, *args[1:], **kwargs)
        if isinstance(result, Tensor) and result.is_floating_point() and name not in _COPIES:
            altering.gave(name, result)
            self._drops.latest = (name, func, args, kwargs, result)
        return result

    def _of_many(self, name: str, func: Any, args: Any, kwargs: Any, stock: Function) -> Ways:
        """The ways of which each call has many, and those that stop gradients."""
        ways: Ways = {}
        if name in arithmetic.TAKING:
            ways |= arithmetic.other_operands(func, args, kwargs, self._altering.results)
        if name in arithmetic.WEIGHTED and not self._altering.in_loss:
            ways |= arithmetic.other_weights(func, args, kwargs, self._alike)
        if name == "linear":
            ways |= arithmetic.transposed(func, args, kwargs)
        if name in (*arithmetic.WEIGHTED, *arithmetic.NORMS) and name != "embedding":
            ways |= arithmetic.followed(name, stock)
        if name in (
            *arithmetic.TAKING,
            *arithmetic.WEIGHTED,
            *arithmetic.NORMS,
            *arithmetic.ACTIVATIONS,
            "getitem",
        ):
            ways |= arithmetic.stopped(func, args, kwargs)
        return ways

    def _moved(self, norm: Function, args: Any) -> Ways:
        """A norm on the other side of the function beside it."""
        ways: Ways = {}
        if self._function is not None and same(args[0], self._function[0]):
            _, name, before, function = self._function
            text = f"comes after {name}, and before it is right"
            ways[f"moved before {name}"] = text, lambda: function(norm(before, *args[1:]))

        def postponed() -> Tensor:
            kept = args[0].clone()
            self._due = kept, lambda x: norm(x, *args[1:])
            return kept

        text = "comes before the function behind it, and after it is right"
        return ways | {"moved behind": (text, postponed)}


def _zeros_around(result: Any, args: Any, kwargs: Any) -> tuple[Tensor, Tensor] | None:
    """What `pad` gave, and ones where that is no padding; None where other numbers than zeros are around."""
    given = dict(zip(("input", "pad", "mode", "value"), args, strict=False)) | kwargs
    if given.get("mode", "constant") != "constant" or given.get("value"):
        return None
    with torch._C.DisableTorchFunction():
        ones = torch.nn.functional.pad(torch.ones_like(given["input"]), given["pad"])
        return result.detach().clone(), ones


_WINDOWS = tuple(
    f"{kind}_pool{rank}d" for kind in ("max", "avg", "adaptive_max", "adaptive_avg") for rank in (1, 2, 3)
)
_POOLING = ("avg_pool1d", "avg_pool2d", "avg_pool3d")
_FAMILIES: dict[str, Callable[[str, Function, Any, Any], Ways]] = {
    **dict.fromkeys(("cat", "concat", "concatenate", "stack", "hstack"), arrangement.joined),
    **dict.fromkeys(
        ("sub", "subtract", "rsub", "div", "truediv", "true_divide", "rtruediv"), arithmetic.computed
    ),
    **dict.fromkeys(("add", "mul", "radd", "rmul", "iadd", "imul", "multiply"), arithmetic.computed),
    **dict.fromkeys(
        ("softmax", "log_softmax", "mean", "sum", "amax", "amin", "logsumexp"),
        partial(reductions.with_axis, 1),
    ),
    "normalize": partial(reductions.with_axis, 2),
    **dict.fromkeys(("smooth_l1_loss", "huber_loss"), losses.rounded_at_zero),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), reductions.spread),
    **dict.fromkeys(("norm", "vector_norm", "linalg_vector_norm"), reductions.length),
    **dict.fromkeys(arithmetic.PLAIN, arithmetic.left_out),
    "einsum": arithmetic.contracted,
    **dict.fromkeys(losses.SCORES, losses.scored),
    **dict.fromkeys(_WINDOWS, reductions.windowed),
    **dict.fromkeys(("flatten", "reshape", "view", "unflatten"), arrangement.reshaped),
    "interpolate": arrangement.resized,
    "pad": arrangement.padded,
    "getitem": arrangement.indexed,
    **dict.fromkeys(("masked_fill", "where"), masks.selected),
    **dict.fromkeys(
        ("eq", "ne", "gt", "lt", "ge", "le", "logical_not", "invert", "bitwise_not"), masks.compared
    ),
    **dict.fromkeys(("scaled_dot_product_attention", "multi_head_attention_forward"), masks.attended),
    **dict.fromkeys(arithmetic.ACTIVATIONS, arithmetic.activated),
    **dict.fromkeys(arithmetic.NORMS, arithmetic.normalized),
    "flip": arrangement.flipped,
    **dict.fromkeys(("cumsum", "cumprod"), reductions.running),
    "meshgrid": arrangement.crossed,
    **dict.fromkeys(("bucketize", "searchsorted"), arrangement.bucketed),
    **dict.fromkeys(("repeat", "repeat_interleave"), arrangement.repeated),
    **dict.fromkeys(("transpose", "swapaxes", "permute"), arrangement.transposed),
    "pixel_shuffle": arrangement.shuffled,
    "roll": arrangement.rolled,
    **dict.fromkeys(("matmul", "bmm"), arithmetic.multiplied),
    **dict.fromkeys(("chunk", "split", "tensor_split", "unbind"), arrangement.divided),
    **dict.fromkeys(("max", "min"), reductions.extreme),
    **dict.fromkeys(arithmetic.RECURRENT, arrangement.recurrent),
    "detach": arithmetic.attached,
    "embedding": arithmetic.embedded,
}
