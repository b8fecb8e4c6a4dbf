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
from parity.torch_impl.external.readers import ACTIVATIONS
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
    settings = settings_of(layer)
    if "transpose" in kind_of(layer):
        settings["cropping"] = _cropping(layer)
    mode = {"pass_mode": "own"} if kind_of(layer) == "batch_norm" else {}
    if isinstance(layer, nn.RNNBase | nn.MultiheadAttention):
        mode["batch_first"] = layer.batch_first
    return {**settings, **trainable, **mode, **layer.__dict__.get(FORCED, {})}


def write(layer: Any, setting: str, value: Any) -> None:
    """Change a setting of one of `layers`; raises KeyError for what cannot be changed."""
    kind = kind_of(layer)
    if setting == "trainable":
        for parameter in layer.parameters():
            parameter.requires_grad_(bool(value))
    elif setting == "padding" and kind.startswith(("conv", "depthwise_conv", "max_pool", "average_pool")):
        _pad(layer, kind, value)
    elif setting == "cropping" and "transpose" in kind:
        _force(layer, setting, value, None if value == _cropping(layer) else partial(_cropped, sides=value))
    elif setting == "running_variance" and kind == "batch_norm":
        _force(layer, setting, value, _with_biased_variance if value == "biased" else None)
    elif setting == "pass_mode" and kind == "batch_norm":
        _force(layer, setting, value, _runs(value))
    elif setting == "function" and kind == "activation":
        own = settings_of(layer)["function"] == value
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
    **{name: (name, float) for name in ("negative_slope", "alpha", "beta", "threshold", "dropout")},
    "low": ("min_val", float),
    "high": ("max_val", float),
    "approximate": ("approximate", lambda value: "tanh" if value else "none"),
    "axis": ("dim", int),
    "strides": ("stride", tuple),
    "dilation": ("dilation", tuple),
    **{name: (name, bool) for name in ("ceil_mode", "align_corners")},
    "count_padding": ("count_include_pad", bool),
    "divisor": ("divisor_override", lambda value: value),
    "groups": ("num_groups", int),  # of a norm: those of a convolution say what its weights are
    "between_dropout": ("dropout", float),
    "statistics": ("track_running_stats", lambda value: value == "moving"),
    "interpolation": ("mode", lambda value: value),
    "padding_id": ("padding_idx", lambda value: value),
    "max_norm": ("max_norm", lambda value: value),
    "batch_first": ("batch_first", bool),
    "scale_by_frequency": ("scale_grad_by_freq", bool),
}
# Functions that one without settings may become.
_PIECEWISE = ("relu", "relu6", "hard_sigmoid", "hard_swish")
_SMOOTH = ("gelu", "silu", "mish", "selu", "elu", "sigmoid", "tanh", "softplus", "softsign")
_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {"linear": nn.Identity()} | {
    name: module() for module, (name, _) in ACTIVATIONS.items() if name in (*_PIECEWISE, *_SMOOTH)
}


def _pad(module: Any, kind: str, value: Any) -> None:
    """Any amount on each side, in either framework's manner."""
    if "transpose" in kind:
        raise KeyError("padding")
    rank, own = int(kind[-2]), module.padding
    if value == settings_of(module)["padding"]:
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


def _cropping(layer: Any) -> tuple[int, ...]:
    """(before, behind) of all axes: what a transposed convolution cuts off its whole output."""
    pairs = zip(layer.padding, layer.output_padding, strict=True)
    return tuple(side for cut, kept in pairs for side in (cut, cut - kept))


def _cropped(forward: Any, sides: tuple[int, ...]) -> Any:
    """A transposed convolution of whose whole output another part is cut off: (before, behind) of all axes."""
    module = forward.__self__
    own = module.padding, module.output_padding

    def cropped(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        rank = len(sides) // 2
        module.padding = module.output_padding = (0,) * rank
        try:
            whole: Tensor = forward(x, *args, **kwargs)
        finally:
            module.padding, module.output_padding = own
        # F.pad takes the last axis first, and cuts off where a number is negative.
        cut = [-side for axis in reversed(range(rank)) for side in sides[2 * axis : 2 * axis + 2]]
        return F.pad(whole, cut)

    return cropped


def _runs(mode: str | int) -> Any:
    """What makes a batch norm run in a mode: 'own', 'inference', or in so many parts of its batch."""
    return (
        {"own": None, "inference": _in_inference}[mode]
        if isinstance(mode, str)
        else partial(_in_parts, count=mode)
    )


def _in_parts(forward: Any, count: int) -> Any:
    """A layer that is given so many parts of its batch one after the other."""
    return lambda x: torch.cat([forward(part) for part in x.chunk(count)])


def _in_inference(forward: Any) -> Any:
    """A layer that runs as in eval(), whatever the mode of the pass is."""
    module = forward.__self__

    def evaluated(x: Tensor) -> Tensor:
        training, module.training = module.training, False
        try:
            result: Tensor = forward(x)
        finally:
            module.training = training
        return result

    return evaluated


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
