"""PyTorch's layers and functions in canonical kinds, roles and settings; see `common/external/lint/settings.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from parity.common.external.process.changes import numbers
from parity.common.spec.external.outline import Settings
from parity.torch_impl.external.readers import ACTIVATIONS, READERS

# By kind; {} stands for the number of spatial axes: 1 for the first class of a row, then 2, then 3.
_CLASSES: dict[str, tuple[type[nn.Module], ...]] = {
    "dense": (nn.Linear,),
    "bilinear": (nn.Bilinear,),
    "conv{}d": (nn.Conv1d, nn.Conv2d, nn.Conv3d),
    "conv{}d_transpose": (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
    "batch_norm": (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    "layer_norm": (nn.LayerNorm,),
    "rms_norm": (nn.RMSNorm,),
    "group_norm": (nn.GroupNorm,),
    "instance_norm": (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
    "embedding": (nn.Embedding,),
    "max_pool{}d": (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d),
    "average_pool{}d": (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
    "adaptive_average_pool": (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
    "adaptive_max_pool": (nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d),
    "dropout": (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d),
    "alpha_dropout": (nn.AlphaDropout,),
    "prelu": (nn.PReLU,),
    "flatten": (nn.Flatten,),
    "identity": (nn.Identity,),
    "lstm": (nn.LSTM,),
    "gru": (nn.GRU,),
    "simple_rnn": (nn.RNN,),
    "lstm_cell": (nn.LSTMCell,),
    "gru_cell": (nn.GRUCell,),
    "simple_rnn_cell": (nn.RNNCell,),
    "attention": (nn.MultiheadAttention,),
    "resize": (nn.Upsample, nn.UpsamplingNearest2d, nn.UpsamplingBilinear2d),
    "zero_pad": (nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d),
}
_KINDS = {cls: kind.format(rank) for kind, classes in _CLASSES.items() for rank, cls in enumerate(classes, 1)}
_ROLES = {
    "dense": {"weight": "kernel"},
    "embedding": {"weight": "embedding"},
    "prelu": {"weight": "alpha"},
    "attention": {
        "in_proj_bias": "in_bias",
        "in_proj_weight": "in_kernel",
        "q_proj_weight": "query_kernel",
        "k_proj_weight": "key_kernel",
        "v_proj_weight": "value_kernel",
        "out_proj.weight": "output_kernel",
        "out_proj.bias": "output_bias",
    },
    "norm": {
        "weight": "gamma",
        "bias": "beta",
        "running_mean": "moving_mean",
        "running_var": "moving_variance",
    },
}
# Canonical names of those without settings; the functions' have no underscores.
_SMOOTH = ("silu", "mish", "selu", "sigmoid", "log_sigmoid", "tanh", "softsign")
_PLAIN = ("relu", "relu6", "hard_sigmoid", "hard_swish", *_SMOOTH)
# By name: the module that does the same, and what follows the input in the function's signature.
_MODULES: dict[str, tuple[type[nn.Module], tuple[str, ...]]] = {
    **{name.replace("_", ""): (cls, ()) for cls, (name, _) in ACTIVATIONS.items() if name in _PLAIN},
    "relu_": (nn.ReLU, ()),
    "gelu": (nn.GELU, ("approximate",)),
    "elu": (nn.ELU, ("alpha",)),
    "leaky_relu": (nn.LeakyReLU, ("negative_slope",)),
    "softplus": (nn.Softplus, ("beta", "threshold")),
    "softmax": (nn.Softmax, ("dim",)),
    "log_softmax": (nn.LogSoftmax, ("dim",)),
    "dropout": (nn.Dropout, ("p",)),
}
# By a name before the rank, as the functions have it, and a name before it, as the modules have it.
_OF_A_RANK: dict[tuple[str, str], tuple[str, ...]] = {
    ("max_pool", "MaxPool"): ("kernel_size", "stride", "padding", "dilation", "ceil_mode"),
    ("avg_pool", "AvgPool"): ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad"),
    ("adaptive_avg_pool", "AdaptiveAvgPool"): ("output_size",),
    ("adaptive_max_pool", "AdaptiveMaxPool"): ("output_size",),
    ("dropout", "Dropout"): ("p",),
}
_MODULES |= {
    f"{function}{rank}d": (getattr(nn, f"{module}{rank}d"), names)
    for (function, module), names in _OF_A_RANK.items()
    for rank in (1, 2, 3)
}


def _stock(layer: nn.Module) -> type[nn.Module] | None:
    """The class of torch.nn that a layer is of, or derives from."""
    return next((cls for cls in type(layer).__mro__ if cls in _KINDS or cls in ACTIVATIONS), None)


def kind_of(layer: nn.Module) -> str:
    """The canonical kind, '' where it is none that we know."""
    stock = _stock(layer)
    if stock is None:
        return "" if type(layer) is not nn.Sequential or len(layer) else "identity"
    if stock in ACTIVATIONS:
        return "activation"
    kind = _KINDS[stock]
    if kind.startswith("adaptive_") and set(numbers(layer.output_size, 1)) == {1}:
        return kind.replace("adaptive", "global")
    if kind in ("conv1d", "conv2d") and layer.groups == layer.in_channels > 1:
        return f"depthwise_{kind}"
    return kind


def is_overridden(layer: nn.Module) -> bool:
    """Whether the class computes otherwise than the one of torch.nn that it derives from."""
    stock = _stock(layer)
    if stock is None or type(layer) is stock:
        return False
    names = ("forward", "_conv_forward")
    return any(getattr(type(layer), name, None) is not getattr(stock, name, None) for name in names)


def is_stochastic(layer: nn.Module) -> bool:
    """Whether it draws random numbers in training."""
    if isinstance(layer, nn.modules.dropout._DropoutNd | nn.RReLU | nn.FractionalMaxPool2d):
        return getattr(layer, "p", 1.0) > 0
    # Of stochastic depth, as the packages of image models call it.
    rates = [getattr(layer, "dropout", 0.0), getattr(layer, "drop_prob", 0.0)]
    return any(isinstance(rate, int | float) and rate > 0 for rate in rates)


def role_of(layer: nn.Module, name: str) -> str:
    """The canonical role of a tensor by its attribute; the attribute where it has none."""
    kind = kind_of(layer)
    if kind.endswith("_norm"):
        return _ROLES["norm"].get(name, name)
    if "conv" in kind:
        return "kernel" if name == "weight" else name
    if kind in ("lstm", "gru", "simple_rnn"):
        return _recurrent_role(name)
    if kind.endswith("_cell"):
        return _recurrent_role(f"{name}_l0")
    return _ROLES.get(kind, {}).get(name, name)


def _recurrent_role(name: str) -> str:
    """weight_ih_l0_reverse -> backward_kernel; of layers above the first with their number after."""
    head, _, rest = name.rpartition("_l")
    roles = {
        "weight_ih": "kernel",
        "weight_hh": "recurrent_kernel",
        "bias_ih": "bias",
        "bias_hh": "recurrent_bias",
    }
    number, _, reverse = rest.partition("_")
    if head not in roles or not number.isdigit():
        return name
    role = f"backward_{roles[head]}" if reverse else roles[head]
    return role if number == "0" else f"{role}_{number}"


def settings_of(layer: nn.Module) -> Settings:
    """The canonical settings of a layer of a known kind; none of others."""
    reader = READERS.get(kind_of(layer))
    if reader is None:
        return {}
    found = reader(layer)
    if is_overridden(layer):
        found.pop("running_variance", None)
    return found


def argument_of(layer: nn.Module) -> Settings | None:
    """The function of a layer's `activation` argument: torch's layers have none."""
    del layer


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
    if name == "scaled_dot_product_attention":
        return name, "activation", READERS["activation"](nn.Softmax(-1))
    if name == "interpolate":
        names = ("size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias")
        arguments = _named(names, args, kwargs)
        mode, corners = arguments.get("mode", "nearest"), arguments.get("align_corners")
        before = (args[0] if args else kwargs["input"]).shape[2:]
        whole = all(new % old == 0 for new, old in zip(result.shape[2:], before, strict=True))
        sized = nn.Upsample(scale_factor=2.0 if whole else 1.5, mode=mode, align_corners=corners)
        settings = READERS["resize"](sized)
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
