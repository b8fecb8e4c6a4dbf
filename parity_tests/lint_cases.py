"""Pairs of layers for `parity lint`, equal but for one setting, and what must be named of each."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from parity.common.spec.external.outline import Outline
from parity_tests.peers import Peer

# (setting, row of DIFFERENCES)
Found = set[tuple[str, int | None]]
Ask = dict[str, Any]
Layer = tuple[str, dict[str, Any]]


def outlines(peers: dict[str, Peer], asked: list[tuple[Ask, Ask]], arrays: dict[str, np.ndarray]) -> list:
    """(Keras's outline, torch's) of each pair of models; both frameworks work side by side."""
    began = [
        peers[name].begin("lint:outlines", {"models": [pair[side] for pair in asked]}, arrays)
        for side, name in enumerate(("tensorflow", "torch"))
    ]
    found = [each.result() for each in began]
    return [
        tuple(_outline(side[str(number)]) for side in found)
        if all(s[str(number)].size for s in found)
        else None
        for number in range(len(asked))
    ]


def _outline(text: np.ndarray) -> Outline:
    return Outline.parse(json.loads(text.tobytes()))


# What two layers of one kind need to be equal, and then for each setting: which side gets which argument, and the
# setting and the row that must be named. "keras" and "torch" are [class, arguments].
IMAGE, TOKENS, VECTOR = (8, 8, 4), (6, 8), (8,)


def _conv(keras: Ask, torch: Ask, shape: tuple[int, ...] = IMAGE) -> tuple[Layer, Layer, tuple[int, ...]]:
    left = {"filters": 8, "kernel_size": 3, **keras}
    return (
        ("Conv2D", left),
        ("Conv2d", {"in_channels": 4, "out_channels": 8, "kernel_size": 3, **torch}),
        shape,
    )


def dense(keras: Ask, torch: Ask) -> tuple[Layer, Layer, tuple[int, ...]]:
    return (
        ("Dense", {"units": 8, **keras}),
        ("Linear", {"in_features": 8, "out_features": 8, **torch}),
        VECTOR,
    )


def _norm(keras: Ask, torch: Ask) -> tuple[Layer, Layer, tuple[int, ...]]:
    left = {"momentum": 0.9, "epsilon": 1e-5, **keras}
    return ("BatchNormalization", left), ("BatchNorm2d", {"num_features": 4, **torch}), IMAGE


def _one(
    left: str, right: str, base: tuple[Ask, Ask], shape: tuple[int, ...], keras: Ask, torch: Ask
) -> tuple[Layer, Layer, tuple[int, ...]]:
    return (left, {**base[0], **keras}), (right, {**base[1], **torch}), shape


def _layer_norm(keras: Ask, torch: Ask) -> Any:
    return _one(
        "LayerNormalization",
        "LayerNorm",
        ({"epsilon": 1e-5}, {"normalized_shape": 8}),
        TOKENS,
        keras,
        torch,
    )


def _group_norm(keras: Ask, torch: Ask) -> Any:
    base = ({"groups": 2, "epsilon": 1e-5}, {"num_groups": 2, "num_channels": 4})
    return _one("GroupNormalization", "GroupNorm", base, IMAGE, keras, torch)


def _rms_norm(keras: Ask, torch: Ask) -> Any:
    return _one(
        "RMSNormalization", "RMSNorm", ({}, {"normalized_shape": 8, "eps": 1e-6}), TOKENS, keras, torch
    )


def _average(keras: Ask, torch: Ask) -> Any:
    base = ({"pool_size": 3, "strides": 1}, {"kernel_size": 3, "stride": 1})
    return _one("AveragePooling2D", "AvgPool2d", base, IMAGE, keras, torch)


def _max(keras: Ask, torch: Ask) -> Any:
    return _one("MaxPooling2D", "MaxPool2d", ({"pool_size": 2}, {"kernel_size": 2}), (7, 7, 4), keras, torch)


def _dropout(keras: Ask, torch: Ask) -> Any:
    return _one("Dropout", "Dropout", ({"rate": 0.5}, {}), VECTOR, keras, torch)


def _leaky(keras: Ask, torch: Ask) -> Any:
    return _one("LeakyReLU", "LeakyReLU", ({"negative_slope": 0.01}, {}), VECTOR, keras, torch)


def _gelu(keras: Ask, torch: Ask) -> Any:
    return _one("Activation", "GELU", ({"activation": "gelu"}, {}), VECTOR, keras, torch)


def _softmax(keras: Ask, torch: Ask) -> Any:
    return _one("Softmax", "Softmax", ({}, {"dim": 1}), IMAGE, keras, torch)


def _prelu(keras: Ask, torch: Ask) -> Any:
    base = (
        {"shared_axes": [1, 2], "alpha_initializer": {"class_name": "Constant", "config": {"value": 0.25}}},
        {},
    )
    return _one("PReLU", "PReLU", base, IMAGE, keras, {"num_parameters": 4, **torch})


def _embedding(keras: Ask, torch: Ask) -> Any:
    base = ({"input_dim": 50, "output_dim": 8}, {"num_embeddings": 50, "embedding_dim": 8})
    return _one("Embedding", "Embedding", base, (6,), keras, torch)


def _transposed(keras: Ask, torch: Ask) -> Any:
    base = (
        {"filters": 8, "kernel_size": 3, "strides": 2},
        {"in_channels": 4, "out_channels": 8, "kernel_size": 3, "stride": 2},
    )
    return _one("Conv2DTranspose", "ConvTranspose2d", base, IMAGE, keras, torch)


def _resize(keras: Ask, torch: Ask) -> Any:
    base = ({"size": 2, "interpolation": "bilinear"}, {"scale_factor": 2, "mode": "bilinear"})
    return _one("UpSampling2D", "Upsample", base, IMAGE, keras, torch)


def _gru(keras: Ask, torch: Ask) -> Any:
    base = ({"units": 6, "return_sequences": True}, {"input_size": 8, "hidden_size": 6, "batch_first": True})
    return _one("GRU", "GRU", base, TOKENS, keras, torch)


# Where the base itself cannot be equal, what it already names is in the expectation.
LSTM: Found = {("biases", 38), ("bias_initializer", 38)}


def _lstm(keras: Ask, torch: Ask) -> Any:
    base = ({"units": 6, "return_sequences": True}, {"input_size": 8, "hidden_size": 6, "batch_first": True})
    return _one("LSTM", "LSTM", base, TOKENS, keras, torch)


def _elu(keras: Ask, torch: Ask) -> Any:
    return _one("ELU", "ELU", ({}, {}), VECTOR, keras, torch)


def _attention(keras: Ask, torch: Ask) -> Any:
    base = ({"num_heads": 2, "key_dim": 4}, {"num_heads": 2, "embed_dim": 8})
    return _one("attention", "Attention", base, TOKENS, keras, torch)


def _both_ways(keras: Ask, torch: Ask) -> Any:
    base: Ask = {"input_size": 8, "hidden_size": 6, "batch_first": True, "bidirectional": True}
    return _one("both_ways", "LSTM", ({}, base), TOKENS, keras, torch)


def _activation(name: str, module: str) -> Any:
    def make(keras: Ask, torch: Ask) -> Any:
        return _one("Activation", module, ({"activation": name}, {}), VECTOR, keras, torch)

    make.__name__ = f"_{name}"
    return make


def _separable(keras: Ask, torch: Ask) -> Any:
    base = {"in_channels": 4, "out_channels": 8, "kernel_size": 3, "groups": 4, "bias": False}
    after = ("Conv2d", {"in_channels": 8, "out_channels": 6, "kernel_size": 1})
    left = ("SeparableConv2D", {"filters": 6, "kernel_size": 3, "depth_multiplier": 2, **keras})
    return left, [("Conv2d", {**base, **torch}), after], IMAGE


# The projections of an attention: drawn as one by torch, by heads in Keras; and torch's last one is an nn.Linear.
ATTENTION: Found = {("kernel_initializer", 43), ("output_kernel_initializer", 43)}
# A depthwise kernel: torch counts the one channel that a filter sees, Keras all.
SEPARABLE: Found = {("kernel_initializer", 43)}
L2 = {"class_name": "L2", "config": {"l2": 0.01}}
TRUNCATED = {"class_name": "TruncatedNormal", "config": {"stddev": 0.02}}
BASE: Ask = {}
# name, the pair of layers, what must be named
CASES: list[tuple[Any, Ask, Ask, Found]] = [
    (_conv, BASE, BASE, set()),
    (_conv, {"padding": "same"}, {"padding": 1}, set()),
    (_conv, {"padding": "same"}, {"padding": "same"}, set()),
    # Row 33: 8 cells by a stride of 2 are padded (0, 1) by TensorFlow.
    (_conv, {"padding": "same", "strides": 2}, {"padding": 1, "stride": 2}, {("padding", 33)}),
    (_conv, {"padding": "same"}, {"padding": 0}, {("padding", None)}),
    (_conv, {"strides": 2}, BASE, {("strides", None)}),
    (_conv, {"dilation_rate": 2}, BASE, {("dilation", None)}),
    (_conv, {"groups": 2}, BASE, {("groups", None)}),
    (_conv, {"filters": 6}, BASE, {("filters", None)}),
    (_conv, {"kernel_size": 5}, BASE, {("kernel_size", None)}),
    (_conv, {"padding": "same"}, {"padding": 1, "padding_mode": "reflect"}, {("padding_values", None)}),
    (_conv, {"use_bias": False}, BASE, {("use_bias", None)}),
    (_conv, {"trainable": False}, BASE, {("trainable", None)}),
    (_conv, {"kernel_initializer": "he_normal"}, BASE, {("kernel_initializer", 43)}),
    (_conv, {"kernel_initializer": TRUNCATED}, BASE, {("kernel_initializer", 44)}),
    (_conv, {"bias_initializer": "ones"}, BASE, {("bias_initializer", 43)}),
    (_conv, {"kernel_regularizer": L2}, BASE, {("kernel_regularizer", 10)}),
    (_conv, {"bias_regularizer": L2}, BASE, {("bias_regularizer", 10)}),
    (_conv, {"activity_regularizer": L2}, BASE, {("activity_regularizer", 10)}),
    (_conv, {"kernel_constraint": "non_neg"}, BASE, {("kernel_constraint", None)}),
    (_conv, {"activation": "relu"}, BASE, {("counterpart", None)}),
    (dense, BASE, BASE, set()),
    (dense, {"units": 6}, BASE, {("units", None)}),
    (dense, {"use_bias": False}, BASE, {("use_bias", None)}),
    (dense, {"kernel_regularizer": L2}, BASE, {("kernel_regularizer", 10)}),
    (dense, {"kernel_initializer": "orthogonal"}, BASE, {("kernel_initializer", 43)}),
    # Row 32: whether the loss is given probabilities.
    (dense, {"activation": "softmax"}, BASE, {("counterpart", 32)}),
    (_norm, BASE, BASE, {("running_variance", 3)}),
    (_norm, {"momentum": 0.99}, BASE, {("running_variance", 3), ("decay", 1)}),
    (_norm, BASE, {"momentum": 0.2}, {("running_variance", 3), ("decay", 1)}),
    (_norm, BASE, {"momentum": None}, {("running_variance", 3), ("decay", 1)}),
    (_norm, {"epsilon": 1e-3}, BASE, {("running_variance", 3), ("epsilon", 2)}),
    (_norm, {"synchronized": True}, BASE, {("running_variance", 3), ("synchronized", 5)}),
    (
        _norm,
        {"trainable": False},
        BASE,
        {("running_variance", 3), ("trainable", 6), ("frozen_statistics", 6)},
    ),
    (_norm, {"scale": False}, BASE, {("running_variance", 3), ("scale", None)}),
    (_norm, {"center": False}, BASE, {("running_variance", 3), ("center", None)}),
    (_norm, {"gamma_initializer": "zeros"}, BASE, {("running_variance", 3), ("gamma_initializer", 43)}),
    (_norm, {"beta_initializer": "ones"}, BASE, {("running_variance", 3), ("beta_initializer", 43)}),
    (
        _norm,
        {"moving_mean_initializer": "ones"},
        BASE,
        {("running_variance", 3), ("moving_mean_initializer", 43)},
    ),
    (
        _norm,
        {"moving_variance_initializer": "zeros"},
        BASE,
        {("running_variance", 3), ("moving_variance_initializer", 43)},
    ),
    (_norm, {"gamma_regularizer": L2}, BASE, {("running_variance", 3), ("gamma_regularizer", 10)}),
    (_norm, BASE, {"track_running_stats": False}, {("statistics", None)}),
    (_layer_norm, BASE, BASE, set()),
    (_layer_norm, {"epsilon": 1e-3}, BASE, {("epsilon", 40)}),
    (_layer_norm, {"axis": [1, 2]}, BASE, {("axes", None)}),
    (_layer_norm, {"center": False}, BASE, {("center", None)}),
    (_group_norm, BASE, BASE, set()),
    (_group_norm, {"epsilon": 1e-3}, BASE, {("epsilon", 40)}),
    (_group_norm, {"groups": 4}, BASE, {("groups", None)}),
    (_rms_norm, BASE, BASE, set()),
    (_rms_norm, BASE, {"eps": None}, {("epsilon", None)}),
    (_average, BASE, BASE, set()),
    (_average, {"padding": "same"}, {"padding": 1}, {("count_padding", 34)}),
    (_average, {"padding": "same"}, {"padding": 1, "count_include_pad": False}, set()),
    (_average, BASE, {"divisor_override": 4}, {("divisor", None)}),
    (_average, {"pool_size": 2}, BASE, {("size", None)}),
    (_max, BASE, BASE, set()),
    (_max, {"padding": "same"}, {"ceil_mode": True}, set()),
    (_max, BASE, {"ceil_mode": True}, {("padding", 33)}),
    (_max, BASE, {"dilation": 2}, {("dilation", None)}),
    (_max, {"strides": 1}, BASE, {("strides", None)}),
    (_dropout, BASE, BASE, set()),
    (_dropout, {"rate": 0.2}, BASE, {("rate", None)}),
    (_leaky, BASE, BASE, set()),
    (_leaky, {"negative_slope": 0.3}, BASE, {("negative_slope", 41)}),
    (_gelu, BASE, BASE, set()),
    (_gelu, BASE, {"approximate": "tanh"}, {("approximate", 46)}),
    (_gelu, {"activation": "relu"}, BASE, {("function", None)}),
    (_elu, BASE, {"alpha": 0.5}, {("alpha", None)}),
    (_softmax, BASE, BASE, set()),
    (_softmax, {"axis": 1}, BASE, {("axis", None)}),
    (_prelu, BASE, BASE, set()),
    (_prelu, {"shared_axes": None}, BASE, {("slope_per", 42)}),
    (_prelu, {"alpha_initializer": "zeros"}, BASE, {("alpha_initializer", 42)}),
    (_embedding, BASE, BASE, set()),
    (_embedding, {"embeddings_initializer": "normal"}, BASE, {("embedding_initializer", 45)}),
    (_embedding, BASE, {"padding_idx": 0}, {("padding_id", None)}),
    (_embedding, BASE, {"max_norm": 1.0}, {("max_norm", None)}),
    (_embedding, BASE, {"scale_grad_by_freq": True}, {("scale_by_frequency", None)}),
    (_embedding, {"input_dim": 60}, BASE, {("vocabulary", None)}),
    (_embedding, {"embeddings_regularizer": L2}, BASE, {("embeddings_regularizer", 10)}),
    (_transposed, BASE, BASE, set()),
    (_transposed, {"padding": "same"}, {"padding": 1, "output_padding": 1}, {("cropping", 33)}),
    (_transposed, {"padding": "same"}, BASE, {("cropping", 33)}),
    (_transposed, {"output_padding": 1}, {"output_padding": 1}, set()),
    (_resize, BASE, BASE, set()),
    (_resize, BASE, {"align_corners": True}, {("align_corners", 48)}),
    (_resize, {"interpolation": "nearest"}, {"mode": "nearest"}, set()),
    (_resize, {"interpolation": "nearest"}, {"mode": "nearest-exact"}, set()),
    (
        _resize,
        {"interpolation": "nearest"},
        {"mode": "nearest-exact", "scale_factor": 2.5},
        {("nearest_from", 48)},
    ),
    (
        _resize,
        {"interpolation": "bicubic"},
        {"mode": "bicubic"},
        {("cubic_coefficient", 48), ("cubic_edge", 48)},
    ),
    (_gru, BASE, BASE, set()),
    (_gru, {"reset_after": False}, BASE, {("biases", 39), ("reset", 39)}),
    (_gru, {"dropout": 0.1}, BASE, {("input_dropout", 47)}),
    (_gru, {"recurrent_dropout": 0.1}, BASE, {("recurrent_dropout", 47)}),
    (_gru, {"activation": "relu"}, BASE, {("function", None)}),
    (_gru, {"recurrent_activation": "hard_sigmoid"}, BASE, {("gate_function", None)}),
    (_gru, {"go_backwards": True}, BASE, {("direction", None)}),
    (_gru, {"recurrent_initializer": "zeros"}, BASE, {("recurrent_kernel_initializer", 43)}),
    (_gru, {"units": 5}, BASE, {("units", None)}),
    (_gru, BASE, {"num_layers": 2, "dropout": 0.5}, {("layers", None), ("between_dropout", 47)}),
    (_lstm, BASE, BASE, LSTM),
    (_lstm, {"unit_forget_bias": False}, BASE, {("biases", 38)}),
    (
        _lstm,
        {"unit_forget_bias": False, "recurrent_regularizer": L2},
        BASE,
        {("biases", 38), ("recurrent_regularizer", 10)},
    ),
    (_both_ways, BASE, BASE, LSTM),
    (_both_ways, {"merge_mode": "sum"}, BASE, {*LSTM, ("merge", None)}),
    (_attention, BASE, BASE, ATTENTION),
    (_attention, {"dropout": 0.1}, BASE, {*ATTENTION, ("dropout", None)}),
    (_attention, {"num_heads": 4}, BASE, {*ATTENTION, ("heads", None)}),
    (_attention, {"key_dim": 2}, BASE, {*ATTENTION, ("head_size", None), ("scale_factor", None)}),
    (_attention, {"use_bias": False}, BASE, {*ATTENTION, ("use_bias", None), ("output_bias", None)}),
    (_attention, {"kernel_initializer": "he_uniform"}, BASE, {*ATTENTION, ("output_kernel_initializer", 43)}),
    (_attention, {"bias_initializer": "ones"}, BASE, {*ATTENTION, ("bias_initializer", 43)}),
    (_attention, BASE, {"add_bias_kv": True}, {*ATTENTION, ("key_value_bias", None)}),
    (_attention, BASE, {"add_zero_attn": True}, {*ATTENTION, ("zero_attention", None)}),
    (_activation("hard_tanh", "Hardtanh"), BASE, BASE, set()),
    (_activation("hard_tanh", "Hardtanh"), BASE, {"min_val": -2.0}, {("low", None)}),
    (_activation("hard_tanh", "Hardtanh"), BASE, {"max_val": 2.0}, {("high", None)}),
    # torch's takes x itself above 20, which is 2e-9 less.
    (_activation("softplus", "Softplus"), BASE, BASE, {("threshold", None)}),
    (_activation("softplus", "Softplus"), BASE, {"beta": 2.0}, {("threshold", None), ("beta", None)}),
    (_activation("hard_silu", "Hardswish"), BASE, BASE, set()),
    (_activation("hard_sigmoid", "Hardsigmoid"), BASE, BASE, set()),
    (_activation("mish", "Mish"), BASE, BASE, set()),
    (_activation("leaky_relu", "LeakyReLU"), BASE, BASE, {("negative_slope", 41)}),
    (_conv, {"bias_constraint": "non_neg"}, BASE, {("bias_constraint", None)}),
    (_dropout, BASE, {"inplace": True}, set()),
    (_embedding, {"output_dim": 6}, BASE, {("features", None)}),
    (_embedding, {"embeddings_constraint": "non_neg"}, BASE, {("embeddings_constraint", None)}),
    (_prelu, {"alpha_regularizer": L2}, BASE, {("alpha_regularizer", 10)}),
    (_layer_norm, {"beta_regularizer": L2}, BASE, {("beta_regularizer", 10)}),
    (
        _resize,
        {"interpolation": "bicubic"},
        BASE,
        {("interpolation", 48), ("cubic_coefficient", 48), ("cubic_edge", 48)},
    ),
    (_separable, BASE, BASE, SEPARABLE),
    (_separable, {"padding": "same"}, BASE, {*SEPARABLE, ("padding", None)}),
    (_separable, {"padding": "same"}, {"padding": 1}, SEPARABLE),
    (_separable, {"use_bias": False}, BASE, {*SEPARABLE, ("use_bias", None)}),
    (_separable, {"pointwise_regularizer": L2}, BASE, {*SEPARABLE, ("kernel_regularizer", 10)}),
]


def ask(case: tuple[Any, Ask, Ask, Found]) -> tuple[Ask, Ask]:
    make, keras, torch, _ = case
    left, right, shape = make(keras, torch)
    tokens = left[0] == "Embedding"
    name = "x".join(map(str, shape)) + ("int" if tokens else "")
    ours: Ask = {"model": left[0], "arguments": left[1]}
    if left[0][0].isupper():
        arguments = {"parts": [left], "shape": shape, "dtype": "int32" if tokens else "float32"}
        ours = {"model": "chain", "arguments": arguments}
    theirs: Ask = {"model": "chain", "arguments": {"parts": right if isinstance(right, list) else [right]}}
    if right[0] == "Attention":
        theirs = {"model": "Attention", "arguments": right[1]}
    return {**ours, "inputs": f"{name}_last"}, {**theirs, "inputs": f"{name}_first"}


def arrays() -> dict[str, np.ndarray]:
    found = {}
    for shape in (IMAGE, TOKENS, VECTOR, (7, 7, 4)):
        batch = np.zeros((2, *shape), np.float32)
        name = "x".join(map(str, shape))
        found[f"{name}_last"] = batch
        found[f"{name}_first"] = np.moveaxis(batch, -1, 1).copy() if len(shape) == 3 else batch
    found["6int_last"] = found["6int_first"] = np.zeros((2, 6), np.int64)
    return found


def said(arguments: Ask) -> str:
    return (
        ",".join(f"{name}={value}" for name, value in arguments.items() if not isinstance(value, dict))
        or "base"
    )
