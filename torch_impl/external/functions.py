"""PyTorch's functions that stand for layers; see `common/external/lint/settings.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from parity.torch_impl.external.readers import READERS, Settings

_FUNCTIONS: dict[str, str] = {
    "relu": "relu",
    "relu_": "relu",
    "relu6": "relu6",
    "gelu": "gelu",
    "silu": "silu",
    "mish": "mish",
    "selu": "selu",
    "elu": "elu",
    "leaky_relu": "leaky_relu",
    "sigmoid": "sigmoid",
    "logsigmoid": "log_sigmoid",
    "tanh": "tanh",
    "softsign": "softsign",
    "softplus": "softplus",
    "hardsigmoid": "hard_sigmoid",
    "hardswish": "hard_swish",
    "softmax": "softmax",
    "log_softmax": "log_softmax",
}


def function_of(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> tuple[str, str, Settings] | None:
    """(its name, its kind, its settings) of a function of tensors that stands for a layer; else None."""
    name = getattr(function, "__name__", "")
    given = args[0] if args else kwargs.get("input")
    if not isinstance(given, torch.Tensor):
        return None
    if name in _FUNCTIONS:
        return name, "activation", _function_settings(name, args, kwargs)
    if name in ("max_pool1d", "max_pool2d", "max_pool3d"):
        names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
        arguments = dict(zip(names, args[1:], strict=False)) | kwargs
        cls: Any = {"1": nn.MaxPool1d, "2": nn.MaxPool2d, "3": nn.MaxPool3d}[name[-2]]
        return name, name, READERS[name](cls(**{key: arguments[key] for key in names if key in arguments}))
    if name in ("avg_pool1d", "avg_pool2d", "avg_pool3d"):
        names = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
        arguments = dict(zip(names, args[1:], strict=False)) | kwargs
        cls = {"1": nn.AvgPool1d, "2": nn.AvgPool2d, "3": nn.AvgPool3d}[name[-2]]
        kind = f"average_pool{name[-2:]}"
        return name, kind, READERS[kind](cls(**{key: arguments[key] for key in names if key in arguments}))
    if name.startswith("adaptive_") and name[:-2].endswith("_pool"):
        size = args[1] if len(args) > 1 else kwargs["output_size"]
        word = "average" if "avg" in name else "max"
        if all(side == 1 for side in (size if isinstance(size, tuple | list) else (size,))):
            return name, f"global_{word}_pool", {}
        return name, f"adaptive_{word}_pool", READERS["adaptive_average_pool"](nn.AdaptiveAvgPool2d(size))
    if name in ("dropout", "dropout1d", "dropout2d", "dropout3d"):
        rate = float(args[1] if len(args) > 1 else kwargs.get("p", 0.5))
        return name, "dropout", {"rate": rate, "whole": "elements" if name == "dropout" else "channels"}
    if name == "interpolate":
        names = ("size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias")
        arguments = dict(zip(names, args[1:], strict=False)) | kwargs
        mode, corners = arguments.get("mode", "nearest"), arguments.get("align_corners")
        settings = READERS["resize"](nn.Upsample(scale_factor=1, mode=mode, align_corners=corners))
        if arguments.get("antialias"):
            settings["antialias"] = True
            settings |= {"cubic_coefficient": -0.5} if mode == "bicubic" else {}
        return name, "resize", settings
    if name == "pad":
        return _padded(given, args, kwargs)
    return _shaped(name, given, args, kwargs, result)


def _function_settings(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Settings:
    def take(key: str, default: Any, place: int = 1) -> Any:
        return args[place] if len(args) > place else kwargs.get(key, default)

    more: Settings = {}
    if name == "gelu":
        more["approximate"] = kwargs.get("approximate", "none") == "tanh"
    elif name == "leaky_relu":
        more["negative_slope"] = float(take("negative_slope", 0.01))
    elif name == "elu":
        more["alpha"] = float(take("alpha", 1.0))
    elif name == "softplus":
        more = {"beta": float(take("beta", 1.0)), "threshold": float(take("threshold", 20.0, 2))}
    elif name in ("softmax", "log_softmax"):
        more["axis"] = take("dim", None)
    return {"function": _FUNCTIONS[name], **more}


def _padded(
    given: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[str, str, Settings] | None:
    """Zeros around all axes but those of batch and channels."""
    arguments = dict(zip(("pad", "mode", "value"), args[1:], strict=False)) | kwargs
    pads = tuple(int(side) for side in arguments["pad"])
    zeros = arguments.get("mode", "constant") == "constant" and not arguments.get("value")
    if not zeros or given.dim() < 3 or any(pads[2 * (given.dim() - 2) :]):
        return None
    pads = (*pads, *(0,) * (2 * (given.dim() - 2)))[: 2 * (given.dim() - 2)]
    return "pad", "zero_pad", {"padding": _outer_first(pads)}


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


def _outer_first(pads: tuple[int, ...]) -> tuple[int, ...]:
    """(before, after) of the first axis, then of the next: F.pad begins with the last."""
    pairs = [pads[start : start + 2] for start in range(0, len(pads), 2)]
    return tuple(side for pair in reversed(pairs) for side in pair)
