"""PyTorch's functions that stand for layers; see `common/external/lint/settings.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from parity.torch_impl.external.readers import READERS, Settings
from parity.torch_impl.external.settings import kind_of

_MAX_POOL = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
_AVERAGE_POOL = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
# By name: the module that does the same, and what follows the input in the function's signature.
_MODULES: dict[str, tuple[type[nn.Module], tuple[str, ...]]] = {
    "relu": (nn.ReLU, ()),
    "relu_": (nn.ReLU, ()),
    "relu6": (nn.ReLU6, ()),
    "gelu": (nn.GELU, ("approximate",)),
    "silu": (nn.SiLU, ()),
    "mish": (nn.Mish, ()),
    "selu": (nn.SELU, ()),
    "elu": (nn.ELU, ("alpha",)),
    "leaky_relu": (nn.LeakyReLU, ("negative_slope",)),
    "sigmoid": (nn.Sigmoid, ()),
    "logsigmoid": (nn.LogSigmoid, ()),
    "tanh": (nn.Tanh, ()),
    "softsign": (nn.Softsign, ()),
    "softplus": (nn.Softplus, ("beta", "threshold")),
    "hardsigmoid": (nn.Hardsigmoid, ()),
    "hardswish": (nn.Hardswish, ()),
    "softmax": (nn.Softmax, ("dim",)),
    "log_softmax": (nn.LogSoftmax, ("dim",)),
    "max_pool1d": (nn.MaxPool1d, _MAX_POOL),
    "max_pool2d": (nn.MaxPool2d, _MAX_POOL),
    "max_pool3d": (nn.MaxPool3d, _MAX_POOL),
    "avg_pool1d": (nn.AvgPool1d, _AVERAGE_POOL),
    "avg_pool2d": (nn.AvgPool2d, _AVERAGE_POOL),
    "avg_pool3d": (nn.AvgPool3d, _AVERAGE_POOL),
    "adaptive_avg_pool1d": (nn.AdaptiveAvgPool1d, ("output_size",)),
    "adaptive_avg_pool2d": (nn.AdaptiveAvgPool2d, ("output_size",)),
    "adaptive_avg_pool3d": (nn.AdaptiveAvgPool3d, ("output_size",)),
    "adaptive_max_pool1d": (nn.AdaptiveMaxPool1d, ("output_size",)),
    "adaptive_max_pool2d": (nn.AdaptiveMaxPool2d, ("output_size",)),
    "adaptive_max_pool3d": (nn.AdaptiveMaxPool3d, ("output_size",)),
    "dropout": (nn.Dropout, ("p",)),
    "dropout1d": (nn.Dropout1d, ("p",)),
    "dropout2d": (nn.Dropout2d, ("p",)),
    "dropout3d": (nn.Dropout3d, ("p",)),
}


def function_of(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> tuple[str, str, Settings] | None:
    """(its name, its kind, its settings) of a function of tensors that stands for a layer; else None."""
    name = getattr(function, "__name__", "")
    given = args[0] if args else kwargs.get("input")
    if not isinstance(given, torch.Tensor):
        return None
    if name in _MODULES:
        cls, names = _MODULES[name]
        module = cls(**_named(names, args, kwargs))
        kind = kind_of(module)
        return name, kind, READERS[kind](module)
    if name == "interpolate":
        names = ("size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias")
        arguments = _named(names, args, kwargs)
        mode, corners = arguments.get("mode", "nearest"), arguments.get("align_corners")
        settings = READERS["resize"](nn.Upsample(scale_factor=1, mode=mode, align_corners=corners))
        if arguments.get("antialias"):
            settings["antialias"] = True
            settings |= {"cubic_coefficient": -0.5} if mode == "bicubic" else {}
        return name, "resize", settings
    if name == "pad":
        return _padded(given, args, kwargs)
    return _shaped(name, given, args, kwargs, result)


def _named(names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of these names, of a call whose first is the input."""
    given = dict(zip(names, args[1:], strict=False)) | kwargs
    return {name: given[name] for name in names if name in given}


def _padded(
    given: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[str, str, Settings] | None:
    """Zeros around all axes but those of batch and channels."""
    arguments = _named(("pad", "mode", "value"), args, kwargs)
    pads = tuple(int(side) for side in arguments["pad"])
    zeros = arguments.get("mode", "constant") == "constant" and not arguments.get("value")
    if not zeros or given.dim() < 3 or any(pads[2 * (given.dim() - 2) :]):
        return None
    pads = (*pads, *(0,) * (2 * (given.dim() - 2)))[: 2 * (given.dim() - 2)]
    return "pad", "zero_pad", READERS["zero_pad"](nn.ZeroPad2d(pads))


def _shaped(
    name: str, given: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor
) -> tuple[str, str, Settings] | None:
    """Flattening and global pooling, however they are written."""
    if name in ("flatten", "view", "reshape"):
        flat = result.dim() == 2 and given.dim() > 2 and len(result) == len(given)
        return (name, "flatten", {"order": "chw", "first": 1, "last": -1}) if flat else None
    if name in ("mean", "amax") and given.dim() == 4:
        axes = args[1] if len(args) > 1 else kwargs.get("dim")
        if isinstance(axes, tuple | list) and sorted(axis % 4 for axis in axes) == [2, 3]:
            return name, f"global_{'average' if name == 'mean' else 'max'}_pool", {}
    return None
