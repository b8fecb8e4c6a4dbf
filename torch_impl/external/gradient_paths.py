"""Experiments on the ways that gradients take through the functions of a live model: stopped, let through, of padding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from parity.common.external.process.gradient_paths import Calls, Ways

# Functions through which a port lets gradients that Keras stops.
_THROUGH = frozenset(
    (
        *(
            "add",
            "radd",
            "iadd",
            "sub",
            "mul",
            "div",
            "truediv",
            "matmul",
            "bmm",
            "einsum",
            "cat",
            "stack",
            "getitem",
        ),
        *("linear", "conv1d", "conv2d", "conv3d", "embedding", "gru", "lstm", "rnn_tanh", "rnn_relu"),
        *("batch_norm", "layer_norm", "group_norm", "rms_norm"),
        *("relu", "relu6", "leaky_relu", "elu", "selu", "gelu", "silu", "tanh", "sigmoid", "softplus"),
        *("hardswish", "hardsigmoid"),
    )
)
_STOPPED = "stops the gradient, and Keras's goes through"


@contextmanager
def altered(wanted: Mapping[int, str]) -> Iterator[Calls]:
    """Have the gradients of some calls of a pass go otherwise; wanted: by the number of a call, the short name of a way."""
    calls = Calls(wanted)
    with _Functions(calls):
        yield calls


class _Functions(TorchFunctionMode):
    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self._calls = calls
        self._with_gradients = torch.is_grad_enabled()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        stock = partial(func, *args, **(kwargs or {}))
        full = getattr(func, "__name__", "")
        name, in_place = full.strip("_"), full.startswith("__i") or full.rstrip("_") == full[:-1]
        ways = {} if self._calls.over else _ways(name, func, args, kwargs or {})
        # What is changed in place may be a buffer, which must not remember where it came from.
        if self._with_gradients and not torch.is_grad_enabled() and _is_floating(args) and not in_place:
            # All that is called in such a block goes together.
            name, ways = "no_grad", {"through": (_STOPPED, lambda: _with_gradients(stock))}
        return self._calls.call(name, ways, stock) if ways else stock()


def _ways(name: str, func: Callable[..., Any], args: Any, kwargs: Any) -> Ways:
    if name == "detach" and args[0].is_floating_point():
        return {"through": (_STOPPED, lambda: args[0].clone())}
    ways: Ways = {}
    if name == "embedding":
        rest = dict(zip(("padding_idx",), args[2:], strict=False)) | kwargs
        # Without such a row too: calls are counted, and a setting that is changed must not change their number.
        text = f"leaves out the gradient of row {rest.get('padding_idx')}, and Keras does not"
        ways["of padding"] = text, partial(func, *args[:2], *args[3:], **{**rest, "padding_idx": None})
    if name in _THROUGH:
        text = "lets the gradient of {} through, and Keras stops it"
        operands = list(args[0]) if args and isinstance(args[0], list | tuple) else []
        for place, each in enumerate(operands):
            if isinstance(each, Tensor):
                others = [*operands[:place], each.detach(), *operands[place + 1 :]]
                stopped = partial(func, others, *args[1:], **kwargs)
                ways[f"stopped {place + 1}"] = text.format(f"operand {place + 1}"), stopped
        if not operands:
            ways["stopped"] = text.format("its result"), lambda: _detached(func(*args, **kwargs))
    return ways


def _is_floating(args: Any) -> bool:
    return any(isinstance(each, Tensor) and each.is_floating_point() for each in args)


def _with_gradients(stock: Callable[[], Any]) -> Any:
    with torch.enable_grad():
        return stock()


def _detached(result: Any) -> Any:
    return result.detach() if isinstance(result, Tensor) else result
