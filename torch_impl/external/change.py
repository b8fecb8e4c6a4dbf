"""Experiments: a canonical setting of a live layer changed, and changed back."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parity.common.external.process.changes import FORCED, force, numbers, set_attribute, sides
from parity.torch_impl.external import names
from parity.torch_impl.external.settings import kind_of, settings_of


def layers(model: nn.Module) -> dict[str, Any]:
    """Return by path what has settings that can be changed."""
    return names.layers(model)


def dropping(model: nn.Module) -> dict[str, Any]:
    """Return by path what may drop a part of what it computes."""
    return {"": model, **names.layers(model)}


def read(layer: nn.Module) -> dict[str, Any]:
    """Return the canonical settings of one of `layers`, as they are now."""
    own = list(layer.parameters())
    trainable = {"trainable": any(parameter.requires_grad for parameter in own)} if own else {}
    return {**settings_of(layer, []), **trainable, **layer.__dict__.get(FORCED, {})}


def write(layer: Any, setting: str, value: Any) -> None:
    """Change a setting of one of `layers`; raises KeyError for what cannot be changed."""
    kind = kind_of(layer)
    if setting == "trainable":
        for parameter in layer.parameters():
            parameter.requires_grad_(bool(value))
    elif setting == "padding" and kind.startswith(("conv", "depthwise_conv", "max_pool", "average_pool")):
        _pad(layer, kind, value)
    elif setting == "running_variance" and kind == "batch_norm":
        _force(layer, setting, value, _with_biased_variance if value == "biased" else None)
    elif setting == "function" and kind == "activation":
        own = settings_of(layer, [])["function"] == value
        function = None if own else _FUNCTIONS[value]
        _force(layer, setting, value, None if function is None else lambda forward: function)
    else:
        set_attribute(layer, setting, value, _ATTRIBUTES)


_force = partial(force, "forward")
# Canonical setting -> attribute of a module, and its value there.
_ATTRIBUTES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "epsilon": ("eps", float),
    "decay": ("momentum", lambda value: None if value is None else 1.0 - value),
    "rate": ("p", float),
    "negative_slope": ("negative_slope", float),
    "alpha": ("alpha", float),
    "beta": ("beta", float),
    "threshold": ("threshold", float),
    "low": ("min_val", float),
    "high": ("max_val", float),
    "approximate": ("approximate", lambda value: "tanh" if value else "none"),
    "axis": ("dim", int),
    "strides": ("stride", tuple),
    "dilation": ("dilation", tuple),
    "ceil_mode": ("ceil_mode", bool),
    "count_padding": ("count_include_pad", bool),
    "divisor": ("divisor_override", lambda value: value),
    "between_dropout": ("dropout", float),
    "dropout": ("dropout", float),
    "statistics": ("track_running_stats", lambda value: value == "moving"),
    "interpolation": ("mode", lambda value: value),
    "align_corners": ("align_corners", bool),
}
_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: x,
    "relu": F.relu,
    "relu6": F.relu6,
    "gelu": F.gelu,
    "silu": F.silu,
    "mish": F.mish,
    "selu": F.selu,
    "elu": F.elu,
    "sigmoid": F.sigmoid,
    "tanh": F.tanh,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "hard_sigmoid": F.hardsigmoid,
    "hard_swish": F.hardswish,
}


def _pad(module: Any, kind: str, value: Any) -> None:
    """Any amount on each side, in either framework's manner."""
    if "transpose" in kind:
        raise KeyError("padding")
    rank, own = int(kind[-2]), module.padding
    if value == settings_of(module, [])["padding"]:
        _force(module, "padding", value, None)
        return
    if getattr(module, "padding_mode", "zeros") != "zeros" or getattr(module, "ceil_mode", False):
        raise KeyError("padding")

    def pads_of(*lengths: int) -> list[tuple[int, int]]:
        names = ("kernel_size", "stride", "dilation")
        return sides(value, lengths, *(numbers(getattr(module, name, 1), rank) for name in names))

    pads_of(*(1,) * rank)  # raises where it is no padding
    filling = -math.inf if kind.startswith("max_pool") else 0.0

    def make(forward: Any) -> Any:
        def padded(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            pads = pads_of(*x.shape[-rank:])
            # F.pad begins with the last axis.
            flat = [side for pair in reversed(pads) for side in pair]
            module.padding = (0,) * rank
            try:
                result: Tensor = forward(F.pad(x, flat, value=filling), *args, **kwargs)
                if not getattr(module, "count_include_pad", True):
                    # The share of each window that is no padding.
                    result = result / forward(F.pad(torch.ones_like(x), flat))
            finally:
                module.padding = own
            return result

        return padded

    _force(module, "padding", value, make)


def _with_biased_variance(forward: Any) -> Any:
    """A batch norm that keeps the biased variance, as Keras's does (row 3)."""
    module = forward.__self__

    def normalized(x: Tensor) -> Tensor:
        before = None if module.running_var is None else module.running_var.clone()
        result: Tensor = forward(x)
        if module.training and before is not None:
            rate = module.momentum
            rate = 1.0 / float(module.num_batches_tracked) if rate is None else rate
            axes = [axis for axis in range(x.dim()) if axis != 1]
            variance = x.detach().var(axes, correction=0)
            # A new tensor: the backward pass still needs the one that was used.
            module.running_var = (1 - rate) * before + rate * variance
        return result

    return normalized
