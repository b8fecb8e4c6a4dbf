"""The canonical settings of Keras's layers, one reader a kind; see `common/external/lint/settings.py`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import initializers as init
from keras import layers as kl

from parity.common.external.process.changes import numbers
from parity.common.spec.external.outline import Settings
from parity.tf_impl.legacy.keras2 import FusedBatchNormalization
from parity.tf_impl.private_names import to_snake_case

_SMOOTH = ("silu", "mish", "selu", "sigmoid", "log_sigmoid", "tanh", "tanh_shrink", "softsign")
# Keras's functions by name: the canonical one, and the settings that its defaults mean.
FUNCTIONS: dict[str, Settings] = {
    **{name: {"function": name} for name in ("relu", "relu6", "hard_sigmoid", *_SMOOTH)},
    "leaky_relu": {"function": "leaky_relu", "negative_slope": 0.2},
    "gelu": {"function": "gelu", "approximate": False},
    "elu": {"function": "elu", "alpha": 1.0},
    "celu": {"function": "celu", "alpha": 1.0},
    "softplus": {"function": "softplus", "beta": 1.0},
    "hard_silu": {"function": "hard_swish"},
    "hard_tanh": {"function": "hard_tanh", "low": -1.0, "high": 1.0},
    "softmax": {"function": "softmax", "axis": -1},
    "log_softmax": {"function": "log_softmax", "axis": -1},
}


def _initializer(value: Any) -> str:
    """Its canonical name; that of its class where it has none."""
    drawn = (
        init.GlorotUniform,
        init.GlorotNormal,
        init.HeUniform,
        init.HeNormal,
        init.LecunNormal,
        init.LecunUniform,
    )
    cls = type(value)
    if cls in (init.Zeros, init.Ones, *drawn):
        return to_snake_case(cls.__name__)
    if cls is init.Orthogonal:
        return "orthogonal" if value.gain == 1 else f"orthogonal_{value.gain:g}"
    if cls is init.Constant and isinstance(value.value, int | float):
        return f"constant_{value.value:g}"
    if cls is init.RandomUniform:
        low, high = value.minval, value.maxval
        return f"uniform_{high:g}" if low == -high else f"uniform_{low:g}_{high:g}"
    if cls in (init.RandomNormal, init.TruncatedNormal):
        word = "normal" if cls is init.RandomNormal else "truncated_normal"
        return f"{word}_{value.stddev:g}" if not value.mean else f"{word}_{value.mean:g}_{value.stddev:g}"
    if cls is init.VarianceScaling:
        if (value.mode, value.distribution) == ("fan_in", "uniform") and math.isclose(value.scale, 1 / 3):
            return "uniform_fan_in"
        return f"{value.distribution} {value.mode} scale {value.scale:g}"
    return cls.__name__


def _initial(layer: Any, *roles: str) -> Settings:
    """By role, where the layer has that tensor."""
    values = {f"{role}_initializer": getattr(layer, f"{role}_initializer", None) for role in roles}
    return {name: _initializer(value) for name, value in values.items() if value is not None}


def _with_bias(layer: Any, *roles: str) -> Settings:
    return {"use_bias": layer.use_bias, **_initial(layer, *roles, *(["bias"] if layer.use_bias else []))}


def _einsum_dense(layer: kl.EinsumDense) -> Settings:
    return {"equation": layer.equation, "use_bias": layer.bias_axes is not None, **_initial(layer, "kernel")}


def _window(layer: Any) -> Settings:
    return {
        "kernel_size": tuple(layer.kernel_size),
        "strides": tuple(layer.strides),
        "padding": layer.padding,
        "padding_values": "zeros",
        "dilation": tuple(layer.dilation_rate),
        "data_format": layer.data_format,
    }


def _convolution(layer: Any) -> Settings:
    if isinstance(layer, kl.DepthwiseConv1D | kl.DepthwiseConv2D):
        groups = layer.kernel.shape[-2] if layer.built else 0
        filters = groups * layer.depth_multiplier
        more: Settings = {
            "kernel_initializer": _initializer(layer.depthwise_initializer),
            **_with_bias(layer),
        }
    else:
        filters, groups, more = layer.filters, layer.groups, _with_bias(layer, "kernel")
    return {"filters": filters, "groups": groups, **_window(layer), **more}


def _separable(layer: Any) -> Settings:
    return {
        "filters": layer.filters,
        "depth_multiplier": layer.depth_multiplier,
        **_window(layer),
        **_with_bias(layer, "depthwise", "pointwise"),
    }


def _transposed(layer: Any) -> Settings:
    extra = layer.output_padding
    return {
        "filters": layer.filters,
        "groups": 1,
        **_window(layer),
        "output_padding": None if extra is None else numbers(extra, len(layer.kernel_size)),
        **_with_bias(layer, "kernel"),
    }


def _affine(layer: Any) -> Settings:
    found: Settings = {"scale": bool(layer.scale), "center": bool(layer.center)}
    roles = [role for role, has in (("gamma", layer.scale), ("beta", layer.center)) if has]
    return {**found, **_initial(layer, *roles)}


def _batch_norm(layer: kl.BatchNormalization) -> Settings:
    return {
        "epsilon": float(layer.epsilon),
        "decay": float(layer.momentum),
        "running_variance": "unbiased" if isinstance(layer, FusedBatchNormalization) else "biased",
        "statistics": "moving",
        "synchronized": bool(layer.synchronized),
        "frozen_statistics": "kept",
        **_affine(layer),
        **_initial(layer, "moving_mean", "moving_variance"),
    }


def _axes_norm(layer: Any) -> Settings:
    return {"epsilon": float(layer.epsilon), "axes": len(numbers(layer.axis, 1))}


def _embedding(layer: Any) -> Settings:
    return {
        "vocabulary": layer.input_dim,
        "features": layer.output_dim,
        "padding_id": None,
        "max_norm": None,
        "scale_by_frequency": False,
        "mask_zero": bool(layer.mask_zero),
        "embedding_initializer": _initial(layer, "embeddings").get("embeddings_initializer"),
    }


def _pool(layer: Any) -> Settings:
    return {
        "size": tuple(layer.pool_size),
        "strides": tuple(layer.strides),
        "padding": layer.padding,
        "ceil_mode": False,
        "dilation": (1,) * len(layer.pool_size),
        "data_format": layer.data_format,
    }


def _average_pool(layer: Any) -> Settings:
    found = _pool(layer)
    del found["dilation"]
    return {**found, "count_padding": False, "divisor": None}


def _dropout(layer: Any) -> Settings:
    shape = getattr(layer, "noise_shape", None)
    spatial = isinstance(layer, kl.SpatialDropout1D | kl.SpatialDropout2D | kl.SpatialDropout3D)
    whole = "channels" if spatial else "elements"
    return {"rate": float(layer.rate), "whole": whole if shape is None else f"shape {shape}"}


def _prelu(layer: kl.PReLU) -> Settings:
    per = "element"
    if layer.built:
        sides = tuple(layer.alpha.shape)
        if math.prod(sides) == 1:
            per = "layer"
        elif len(sides) > 1 and math.prod(sides[:-1]) == 1:
            per = "channel"
    return {"slope_per": per, **_initial(layer, "alpha")}


def _flatten(layer: kl.Flatten) -> Settings:
    return {"order": "hwc" if layer.data_format == "channels_last" else "chw", "first": 1, "last": -1}


def _recurrent(layer: Any) -> Settings:
    biases = "none"
    if layer.use_bias:
        biases = "two" if isinstance(layer, kl.GRU) and layer.reset_after else "one"
    bias = _initial(layer, "bias").get("bias_initializer") if layer.use_bias else None
    if bias == "zeros" and getattr(layer, "unit_forget_bias", False):
        bias = "forget_ones"
    recurrent = _initial(layer, "recurrent").get("recurrent_initializer")
    gates = getattr(layer, "recurrent_activation", None)
    return {
        "units": layer.units,
        "layers": 1,
        "use_bias": layer.use_bias,
        "biases": biases,
        "direction": "backward" if layer.go_backwards else "forward",
        "between_dropout": 0.0,
        "input_dropout": float(layer.dropout),
        "recurrent_dropout": float(layer.recurrent_dropout),
        "reset": ("after" if layer.reset_after else "before") if isinstance(layer, kl.GRU) else None,
        "function": _function(layer.activation)["function"],
        "gate_function": None if gates is None else _function(gates)["function"],
        "return_sequences": layer.return_sequences,
        **_initial(layer, "kernel"),
        "recurrent_kernel_initializer": recurrent,
        **({"bias_initializer": bias} if layer.use_bias else {}),
    }


def _attention(layer: Any) -> Settings:
    grouped = isinstance(layer, kl.GroupQueryAttention)
    size = layer.head_dim if grouped else layer.key_dim
    with_bias = bool(layer.use_bias if grouped else layer._use_bias)
    found: Settings = {
        "heads": layer.num_query_heads if grouped else layer.num_heads,
        "head_size": size,
        "scale_factor": float(size) ** -0.5,
        "dropout": float(layer.dropout if grouped else layer._dropout),
        "use_bias": with_bias,
        "output_bias": with_bias,
        "key_value_bias": False,
        "zero_attention": False,
    }
    kernel = _initializer(layer.kernel_initializer if grouped else layer._kernel_initializer)
    found |= {"kernel_initializer": kernel, "output_kernel_initializer": kernel}
    if with_bias:
        bias = layer.bias_initializer if grouped else layer._bias_initializer
        found["bias_initializer"] = _initializer(bias)
    return found


_REPEATING = (kl.UpSampling1D, kl.UpSampling2D, kl.UpSampling3D)


def _resize(layer: Any) -> Settings:
    method = getattr(layer, "interpolation", "nearest")
    more: dict[str, Settings] = {
        "bicubic": {"cubic_coefficient": -0.5, "cubic_edge": "renormalised"},
        # Repeated cells: of either.
        "nearest": {"nearest_from": "corner" if isinstance(layer, _REPEATING) else "center"},
    }
    antialias = bool(getattr(layer, "antialias", False))
    return {"interpolation": method, "align_corners": False, "antialias": antialias, **more.get(method, {})}


def _pads(padding: Any) -> tuple[int, ...]:
    """(before, after) of each axis in one row."""
    if isinstance(padding, int):
        return (padding, padding)
    return tuple(side for pair in padding for side in numbers(pair, 1))


def _activation(layer: Any) -> Settings:
    if isinstance(layer, kl.ReLU):
        return _relu(layer.negative_slope, layer.max_value, layer.threshold)
    if isinstance(layer, kl.LeakyReLU):
        return {"function": "leaky_relu", "negative_slope": float(layer.negative_slope)}
    if isinstance(layer, kl.ELU):
        return {"function": "elu", "alpha": float(layer.alpha)}
    if isinstance(layer, kl.Softmax):
        axis = layer.axis if isinstance(layer.axis, int) else tuple(layer.axis)
        return {"function": "softmax", "axis": axis}
    return _function(layer.activation)


def _relu(negative_slope: Any, max_value: Any, threshold: Any) -> Settings:
    """Keras's relu in its variants, by the name that each of them has."""
    slope = float(negative_slope or 0.0)
    if threshold:
        return {"function": "relu", "negative_slope": slope, "low": float(threshold)}
    if max_value is not None:
        if float(max_value) == 6.0 and not slope:
            return {"function": "relu6"}
        return {"function": "relu", "negative_slope": slope, "high": float(max_value)}
    return {"function": "leaky_relu", "negative_slope": slope} if slope else {"function": "relu"}


def _function(function: Any) -> Settings:
    """Of a function that was given as an activation."""
    name = getattr(function, "__name__", type(function).__name__)
    module = getattr(function, "__module__", "") or ""
    if module.startswith("keras.") and name in FUNCTIONS:
        return dict(FUNCTIONS[name])
    return {"function": f"{module}.{name}"}


_WINDOWED: dict[str, Callable[[Any], Settings]] = {
    f"{before}{rank}d{after}": reader
    for rank in (1, 2, 3)
    for before, after, reader in (
        ("conv", "", _convolution),
        ("depthwise_conv", "", _convolution),
        ("separable_conv", "", _separable),
        ("conv", "_transpose", _transposed),
        ("max_pool", "", _pool),
        ("average_pool", "", _average_pool),
    )
}


def _rounded(**constants: Any) -> Settings:
    """Which constants of a layer are other numbers in float64 than those that it was given: Keras takes Python's through float32, and no arrays."""
    kept = {
        name: keras.ops.cast(keras.ops.convert_to_tensor(value), "float64")
        for name, value in constants.items()
        if value is not None
    }
    off = (n for n, now in kept.items() if not np.array_equal(now, np.asarray(constants[n], np.float64)))
    return {"rounded": ", ".join(off)}


# By canonical kind.
READERS: dict[str, Callable[[Any], Settings]] = {
    **_WINDOWED,
    "dense": lambda layer: {"units": layer.units, **_with_bias(layer, "kernel")},
    "einsum_dense": _einsum_dense,
    "batch_norm": _batch_norm,
    "layer_norm": lambda layer: {**_axes_norm(layer), **_affine(layer)},
    "rms_norm": lambda layer: {**_axes_norm(layer), "scale": True, "gamma_initializer": "ones"},
    "group_norm": lambda layer: {"epsilon": float(layer.epsilon), "groups": layer.groups, **_affine(layer)},
    "instance_norm": lambda layer: {"epsilon": float(layer.epsilon), "statistics": "batch", **_affine(layer)},
    "embedding": _embedding,
    **dict.fromkeys(
        ("adaptive_average_pool", "adaptive_max_pool"),
        lambda layer: {"sides": ",".join(map(str, numbers(layer.output_size, 1)))},
    ),
    **dict.fromkeys(("global_average_pool", "global_max_pool", "identity"), lambda layer: {}),
    "dropout": _dropout,
    **dict.fromkeys(("alpha_dropout", "gaussian_dropout"), lambda layer: {"rate": float(layer.rate)}),
    "gaussian_noise": lambda layer: {"deviation": float(layer.stddev)},
    "prelu": _prelu,
    "flatten": _flatten,
    **dict.fromkeys(("lstm", "gru", "simple_rnn"), _recurrent),
    "attention": _attention,
    "resize": _resize,
    "rescale": lambda layer: _rounded(scale=layer.scale, offset=layer.offset),
    "standardize": lambda layer: _rounded(mean=layer.input_mean, variance=layer.input_variance),
    "zero_pad": lambda layer: {"padding": _pads(layer.padding)},
    "activation": _activation,
    "activity_penalty": lambda layer: {"l1": float(layer.l1), "l2": float(layer.l2)},
}
