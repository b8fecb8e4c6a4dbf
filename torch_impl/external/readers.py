"""The canonical settings of PyTorch's layers, one reader a kind; see `common/external/lint/settings.py`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from parity.common.external.lint.initial import drawn
from parity.common.external.process.changes import numbers
from parity.common.spec.external.outline import Setting, Settings
from parity.torch_impl.private_names import DTensor

# The function's canonical name, and how its settings are read off the module.
ACTIVATIONS: dict[type[nn.Module], tuple[str, Callable[[Any], Settings]]] = {
    nn.ReLU: ("relu", lambda m: {}),
    nn.ReLU6: ("relu6", lambda m: {}),
    nn.LeakyReLU: ("leaky_relu", lambda m: {"negative_slope": float(m.negative_slope)}),
    nn.ELU: ("elu", lambda m: {"alpha": float(m.alpha)}),
    nn.CELU: ("celu", lambda m: {"alpha": float(m.alpha)}),
    nn.SELU: ("selu", lambda m: {}),
    nn.GELU: ("gelu", lambda m: {"approximate": m.approximate == "tanh"}),
    nn.SiLU: ("silu", lambda m: {}),
    nn.Mish: ("mish", lambda m: {}),
    nn.Sigmoid: ("sigmoid", lambda m: {}),
    nn.LogSigmoid: ("log_sigmoid", lambda m: {}),
    nn.Tanh: ("tanh", lambda m: {}),
    nn.Tanhshrink: ("tanh_shrink", lambda m: {}),
    nn.Softsign: ("softsign", lambda m: {}),
    nn.Softplus: ("softplus", lambda m: {"beta": float(m.beta), "threshold": float(m.threshold)}),
    nn.Hardsigmoid: ("hard_sigmoid", lambda m: {}),
    nn.Hardswish: ("hard_swish", lambda m: {}),
    nn.Hardtanh: ("hard_tanh", lambda m: {"low": float(m.min_val), "high": float(m.max_val)}),
    nn.Hardshrink: ("hard_shrink", lambda m: {"threshold": float(m.lambd)}),
    nn.Softshrink: ("soft_shrink", lambda m: {"threshold": float(m.lambd)}),
    nn.Threshold: ("threshold", lambda m: {"threshold": float(m.threshold), "value": float(m.value)}),
    nn.GLU: ("glu", lambda m: {"axis": int(m.dim)}),
    nn.Softmax: ("softmax", lambda m: {"axis": m.dim}),
    nn.LogSoftmax: ("log_softmax", lambda m: {"axis": m.dim}),
}


def _activation(m: nn.Module) -> Settings:
    name, read = next(ACTIVATIONS[cls] for cls in type(m).__mro__ if cls in ACTIVATIONS)
    return {"function": name, **read(m)}


def _initial(role: str, tensor: Any, fan_in: int, fan_out: int, usual: str) -> Settings:
    """What the values say; nothing where they are by no rule that we know, or a tensor is not there or not whole."""
    if tensor is None or nn.parameter.is_lazy(tensor) or tensor.is_meta or isinstance(tensor, DTensor):
        return {}
    name = drawn(tensor.detach().double().cpu().numpy(), fan_in, fan_out, usual)
    return {} if name is None else {f"{role}_initializer": name}


def _dense(m: nn.Linear) -> Settings:
    fans = (m.in_features, m.out_features)
    return {
        "units": m.out_features,
        "use_bias": m.bias is not None,
        **_initial("kernel", m.weight, *fans, "uniform_fan_in"),
        **_initial("bias", m.bias, *fans, "uniform_fan_in"),
    }


def _convolution(m: Any) -> Settings:
    rank = len(m.kernel_size)
    padding: Setting = m.padding
    if not isinstance(padding, str):
        padding = tuple(side for pad in m.padding for side in (pad, pad))
    # Of a transposed convolution too the fan-in is the second axis, which is that of its outputs.
    window = math.prod(m.kernel_size)
    fans = (m.weight.shape[1] * window, m.weight.shape[0] * window)
    kernel = _initial("kernel", m.weight, *fans, "uniform_fan_in")
    rule = str(kernel.get("kernel_initializer"))
    if m.groups == m.in_channels > 1 and rule.startswith(("uniform_fan_in", "glorot", "he_", "lecun")):
        # Of a depthwise kernel Keras counts all channels for the fan-in.
        kernel["kernel_initializer"] = f"{rule} of one channel"
    return {
        "filters": m.out_channels,
        "kernel_size": tuple(m.kernel_size),
        "strides": numbers(m.stride, rank),
        "padding": padding,
        "padding_values": m.padding_mode,
        "dilation": tuple(m.dilation),
        "groups": m.groups,
        "use_bias": m.bias is not None,
        **kernel,
        **_initial("bias", m.bias, *fans, "uniform_fan_in"),
    }


def _transposed(m: Any) -> Settings:
    return {**_convolution(m), "output_padding": tuple(m.output_padding)}


def _affine(m: Any) -> Settings:
    weight, bias = getattr(m, "weight", None), getattr(m, "bias", None)
    return {
        "scale": weight is not None,
        "center": bias is not None,
        **_initial("gamma", weight, 1, 1, "ones"),
        **_initial("beta", bias, 1, 1, "zeros"),
    }


def _batch_norm(m: Any) -> Settings:
    return {
        "epsilon": float(m.eps),
        # None: the mean of all batches so far.
        "decay": None if m.momentum is None else round(1.0 - m.momentum, 15),
        "running_variance": "unbiased",
        "statistics": "moving" if m.track_running_stats else "batch",
        "synchronized": isinstance(m, nn.SyncBatchNorm),
        "frozen_statistics": "updated",
        **_initial("moving_mean", m.running_mean, 1, 1, "zeros"),
        **_initial("moving_variance", m.running_var, 1, 1, "ones"),
        **_affine(m),
    }


def _rms_norm(m: nn.RMSNorm) -> Settings:
    epsilon: Setting = "machine" if m.eps is None else float(m.eps)
    affine = _affine(m)
    del affine["center"]
    return {"epsilon": epsilon, "axes": len(m.normalized_shape), **affine}


def _instance_norm(m: Any) -> Settings:
    return {
        "epsilon": float(m.eps),
        "statistics": "moving" if m.track_running_stats else "batch",
        **_affine(m),
    }


def _embedding(m: nn.Embedding) -> Settings:
    table = m.weight
    if m.padding_idx is not None and not m.weight.is_meta:
        # Its row is zero, whatever the others are.
        table = m.weight[torch.arange(m.num_embeddings) != m.padding_idx % m.num_embeddings]
    return {
        "vocabulary": m.num_embeddings,
        "features": m.embedding_dim,
        "padding_id": m.padding_idx,
        "max_norm": m.max_norm,
        "scale_by_frequency": m.scale_grad_by_freq,
        **_initial("embedding", table, m.num_embeddings, m.embedding_dim, "normal_1"),
    }


def _pool(rank: int, m: Any) -> Settings:
    return {
        "size": numbers(m.kernel_size, rank),
        "strides": numbers(m.stride, rank),
        "padding": tuple(side for pad in numbers(m.padding, rank) for side in (pad, pad)),
        "ceil_mode": m.ceil_mode,
    }


def _max_pool(rank: int, m: Any) -> Settings:
    return {**_pool(rank, m), "dilation": numbers(m.dilation, rank)}


def _average_pool(rank: int, m: Any) -> Settings:
    divisor = getattr(m, "divisor_override", None)
    return {**_pool(rank, m), "count_padding": m.count_include_pad, "divisor": divisor}


def _adaptive(m: Any) -> Settings:
    sizes = numbers(m.output_size, 1)
    return {"sides": ",".join("all" if side is None else str(side) for side in sizes)}


def _dropout(m: Any) -> Settings:
    return {"rate": float(m.p), "whole": "elements" if type(m) is nn.Dropout else "channels"}


def _prelu(m: nn.PReLU) -> Settings:
    per = "layer" if m.num_parameters == 1 else "channel"
    return {"slope_per": per, **_initial("alpha", m.weight, 1, 1, "constant_0.25")}


def _biases(m: Any) -> str:
    """How many biases each gate has that training tells apart; of a GRU the two are none that are only added."""
    if not m.bias:
        return "none"
    both = m.bias_ih_l0.requires_grad and m.bias_hh_l0.requires_grad
    return "two" if both or isinstance(m, nn.GRU) else "one"


def _recurrent(m: Any) -> Settings:
    # All of its tensors are drawn by the number of units.
    fans = (m.hidden_size, m.weight_hh_l0.shape[0])
    return {
        "units": m.hidden_size,
        "layers": m.num_layers,
        "use_bias": m.bias,
        "biases": _biases(m),
        "direction": "both" if m.bidirectional else "forward",
        **({"merge": "concat"} if m.bidirectional else {}),
        "between_dropout": float(m.dropout) if m.num_layers > 1 else 0.0,
        "input_dropout": 0.0,
        "recurrent_dropout": 0.0,
        "reset": "after" if isinstance(m, nn.GRU) else None,
        "function": getattr(m, "nonlinearity", "tanh"),
        "gate_function": None if isinstance(m, nn.RNN) else "sigmoid",
        **_initial("kernel", m.weight_ih_l0, *fans, "uniform_fan_in"),
        **_initial("recurrent_kernel", m.weight_hh_l0, *fans, "uniform_fan_in"),
        **_initial("bias", m.bias_ih_l0 if m.bias else None, *fans, "uniform_fan_in"),
    }


def _attention(m: nn.MultiheadAttention) -> Settings:
    width = m.embed_dim
    kernel = _initial("kernel", m.in_proj_weight, width, 3 * width, "glorot_uniform")
    if kernel.get("kernel_initializer") == "glorot_uniform":
        kernel["kernel_initializer"] = "glorot_uniform of query, key and value as one"
    return {
        "heads": m.num_heads,
        "head_size": m.head_dim,
        "scale_factor": float(m.head_dim) ** -0.5,
        "dropout": float(m.dropout),
        "use_bias": m.in_proj_bias is not None,
        "output_bias": m.out_proj.bias is not None,
        "key_value_bias": m.bias_k is not None,
        "zero_attention": m.add_zero_attn,
        **kernel,
        **_initial("output_kernel", m.out_proj.weight, width, width, "uniform_fan_in"),
        **_initial("bias", m.in_proj_bias, width, 3 * width, "zeros"),
    }


def _resize(m: Any) -> Settings:
    method = {"linear": "bilinear", "trilinear": "bilinear"}.get(m.mode, m.mode)
    cubic: Settings = {"cubic_coefficient": -0.75, "cubic_edge": "repeated"}
    scales = m.scale_factor if isinstance(m.scale_factor, tuple) else (m.scale_factor,)
    # By whole factors cells are repeated, from wherever they are taken.
    whole = all(scale is not None and float(scale).is_integer() for scale in scales)
    nearest: Settings = {"nearest_from": "corner" if m.mode == "nearest" or whole else "center"}
    return {
        "interpolation": "nearest" if method == "nearest-exact" else method,
        "align_corners": bool(m.align_corners),
        "antialias": False,
        **(cubic if method == "bicubic" else {}),
        **(nearest if method.startswith("nearest") else {}),
    }


def _outer_first(padding: tuple[int, ...]) -> tuple[int, ...]:
    """(before, after) of the first axis, then of the next: F.pad begins with the last."""
    pairs = [padding[start : start + 2] for start in range(0, len(padding), 2)]
    return tuple(side for pair in reversed(pairs) for side in pair)


_CONVOLUTIONS = {
    f"{before}conv{rank}d{after}": _transposed if after else _convolution
    for rank in (1, 2, 3)
    for before, after in (("", ""), ("depthwise_", ""), ("", "_transpose"))
}
# By canonical kind.
READERS: dict[str, Callable[[Any], Settings]] = {
    **_CONVOLUTIONS,
    **{f"max_pool{rank}d": partial(_max_pool, rank) for rank in (1, 2, 3)},
    **{f"average_pool{rank}d": partial(_average_pool, rank) for rank in (1, 2, 3)},
    "dense": _dense,
    "batch_norm": _batch_norm,
    "layer_norm": lambda m: {"epsilon": float(m.eps), "axes": len(m.normalized_shape), **_affine(m)},
    "rms_norm": _rms_norm,
    "group_norm": lambda m: {"epsilon": float(m.eps), "groups": m.num_groups, **_affine(m)},
    "instance_norm": _instance_norm,
    "embedding": _embedding,
    **dict.fromkeys(("adaptive_average_pool", "adaptive_max_pool"), _adaptive),
    **dict.fromkeys(("global_average_pool", "global_max_pool", "identity"), lambda m: {}),
    "dropout": _dropout,
    "alpha_dropout": lambda m: {"rate": float(m.p)},
    "prelu": _prelu,
    "flatten": lambda m: {"order": "chw", "first": m.start_dim, "last": m.end_dim},
    **dict.fromkeys(("lstm", "gru", "simple_rnn"), _recurrent),
    "attention": _attention,
    "resize": _resize,
    "zero_pad": lambda m: {"padding": _outer_first(m.padding)},
    "activation": _activation,
}
