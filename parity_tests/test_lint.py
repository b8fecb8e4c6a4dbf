"""`parity lint`: every setting that differs is named with its row of DIFFERENCES, and no other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.foreign.linting.effective import effective, items_of
from common.foreign.linting.initial import drawn
from common.foreign.linting.lint import Audit, audit
from common.foreign.linting.settings import LAYERS, PLUMBING, READ_WITH_OTHERS, ROWS
from common.foreign.linting.settings_of_optimizers import OPTIMIZERS
from common.foreign.outline import LayerInfo, Outline
from common.foreign.weights.mapping import LayerPair
from parity_tests.command_line import Cli
from parity_tests.peers import Peer

Found = set[tuple[str, int | None]]
ROOT = Path(__file__).parents[1]

# What DIFFERENCES says of a net of these layers, with all arguments left to the frameworks. (setting, row)
STOCK: Found = {
    ("norm - bn: decay", 1),
    ("norm - bn: epsilon", 2),
    ("norm - bn: running_variance", 3),
    ("optimizer: epsilon", 11),
    ("optimizer: epsilon_place", 11),
    ("flat - flatten: order", 37),
    ("leaky - leaky: negative_slope", 41),
    ("conv - conv: kernel_initializer", 43),
    ("conv - conv: bias_initializer", 43),
    ("conv2 - conv2: kernel_initializer", 43),
    ("conv2 - conv2: bias_initializer", 43),
    ("head - fc: kernel_initializer", 43),
    ("head - fc: bias_initializer", 43),
}

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
        tuple(Outline.parse(json.loads(side[str(number)].tobytes())) for side in found)
        for number in range(len(asked))
    ]


def named(result: Audit) -> Found:
    found = set()
    for one in result.differences:
        where = " - ".join(path for path in (one.keras, one.torch) if path is not None) or "optimizer"
        found.add((f"{where}: {one.setting}", one.row))
    assert len(found) == len(result.differences)
    return found


IMAGES = {
    "last": np.zeros((2, 12, 12, 3), np.float32),
    "first": np.zeros((2, 3, 12, 12), np.float32),
}


@pytest.fixture(scope="session")
def nets(peers: dict[str, Peer]) -> dict[str, tuple[Outline, Outline]]:
    """The CNN in its variants."""
    adam: Ask = {"optimizer": ["Adam", {}]}
    keras_adam: Ask = {"optimizer": ["Adam", {"epsilon": 1e-8}]}
    sgd: list[Ask] = [{"optimizer": ["SGD", {"learning_rate": 0.1}]}, {"optimizer": ["SGD", {"lr": 0.1}]}]
    left, right = {"inputs": "last"}, {"inputs": "first"}
    asked = {
        "stock": ({"model": "stock", **adam, **left}, {"model": "Stock", **adam, **right}),
        "equal": ({"model": "made_equal", **sgd[0], **left}, {"model": "MadeEqual", **sgd[1], **right}),
        "adam": ({"model": "made_equal", **keras_adam, **left}, {"model": "MadeEqual", **adam, **right}),
        "untraced": ({"model": "stock", **adam}, {"model": "Stock", **adam}),
    }
    return dict(zip(asked, outlines(peers, list(asked.values()), IMAGES), strict=True))


def test_stock_defaults_are_named_and_nothing_else(nets: dict[str, tuple[Outline, Outline]]) -> None:
    result = audit(*nets["stock"])
    assert named(result) == STOCK
    assert result.unread == ()
    assert len(result.pairs) == 9  # all layers but ReLU, which torch has as a function, and it


def test_with_all_made_equal_nothing_is_named(nets: dict[str, tuple[Outline, Outline]]) -> None:
    result = audit(*nets["equal"])
    assert result.differences == ()
    assert not result.differ
    # Only a class of one's own keeps torch's running variance biased, and what that does cannot be read.
    assert [(one.torch, one.what) for one in result.unread] == [("bn", "layer"), ("bn", "running_variance")]


def test_equal_numbers_at_different_places_are_different(nets: dict[str, tuple[Outline, Outline]]) -> None:
    assert named(audit(*nets["adam"])) == {("optimizer: epsilon_place", 11)}


def test_without_a_pass_what_needs_one_is_not_compared(nets: dict[str, tuple[Outline, Outline]]) -> None:
    found = named(audit(*nets["untraced"]))
    # torch's functions are not seen, so Keras's layers stand alone.
    assert found - STOCK == {("relu: counterpart", None), ("flat: counterpart", None)}
    assert STOCK - found == {("flat - flatten: order", 37)}


def test_each_difference_says_how_to_settle_it(nets: dict[str, tuple[Outline, Outline]]) -> None:
    by_setting = {one.setting: one for one in audit(*nets["stock"]).differences}
    decay = by_setting["decay"]
    assert (decay.fix_keras, decay.fix_torch) == ("momentum=0.9", "momentum=0.01")
    assert decay.changes == "training mode"
    assert by_setting["epsilon_place"].changes == "update"
    assert by_setting["negative_slope"].changes == "forward"
    assert by_setting["kernel_initializer"].changes == "initial values"
    assert "xavier_uniform_" in by_setting["kernel_initializer"].fix_torch
    assert by_setting["order"].changes == "layout"
    for one in by_setting.values():
        assert one.fix_keras and one.fix_torch


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


def _dense(keras: Ask, torch: Ask) -> tuple[Layer, Layer, tuple[int, ...]]:
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
    (_conv, {"padding": "same"}, {"padding": 0}, {("padding", 33)}),
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
    (_dense, BASE, BASE, set()),
    (_dense, {"units": 6}, BASE, {("units", None)}),
    (_dense, {"use_bias": False}, BASE, {("use_bias", None)}),
    (_dense, {"kernel_regularizer": L2}, BASE, {("kernel_regularizer", 10)}),
    (_dense, {"kernel_initializer": "orthogonal"}, BASE, {("kernel_initializer", 43)}),
    # Row 32: whether the loss is given probabilities.
    (_dense, {"activation": "softmax"}, BASE, {("counterpart", 32)}),
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
    (_resize, {"interpolation": "nearest"}, {"mode": "nearest"}, {("nearest_from", 48)}),
    (_resize, {"interpolation": "nearest"}, {"mode": "nearest-exact"}, set()),
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
    (_separable, {"padding": "same"}, BASE, {*SEPARABLE, ("padding", 33)}),
    (_separable, {"padding": "same"}, {"padding": 1}, SEPARABLE),
    (_separable, {"use_bias": False}, BASE, {*SEPARABLE, ("use_bias", None)}),
    (_separable, {"pointwise_regularizer": L2}, BASE, {*SEPARABLE, ("kernel_regularizer", 10)}),
]


def _ask(case: tuple[Any, Ask, Ask, Found]) -> tuple[Ask, Ask]:
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


def _arrays() -> dict[str, np.ndarray]:
    found = {}
    for shape in (IMAGE, TOKENS, VECTOR, (7, 7, 4)):
        batch = np.zeros((2, *shape), np.float32)
        name = "x".join(map(str, shape))
        found[f"{name}_last"] = batch
        found[f"{name}_first"] = np.moveaxis(batch, -1, 1).copy() if len(shape) == 3 else batch
    found["6int_last"] = found["6int_first"] = np.zeros((2, 6), np.int64)
    return found


@pytest.fixture(scope="session")
def cases(peers: dict[str, Peer]) -> list[tuple[Outline, Outline]]:
    """The two outlines of each case."""
    return outlines(peers, [_ask(case) for case in CASES], _arrays())


# class and arguments of either side, what must be named. The first eight are stock against stock.
OPTIMIZER_CASES: list[tuple[str, Ask, str, Ask, Found]] = [
    ("SGD", {}, "SGD", {"lr": 0.01}, set()),
    ("Adam", {}, "Adam", {}, {("epsilon", 11), ("epsilon_place", 11)}),
    ("AdamW", {}, "AdamW", {}, {("epsilon", 11), ("epsilon_place", 11), ("weight_decay", 13)}),
    (
        "RMSprop",
        {},
        "RMSprop",
        {},
        {("learning_rate", 14), ("rho", 14), ("epsilon", 14), ("epsilon_place", 14)},
    ),
    (
        "Adagrad",
        {},
        "Adagrad",
        {},
        {("learning_rate", 15), ("initial_accumulator", 15), ("epsilon", 15), ("epsilon_place", 15)},
    ),
    ("Adadelta", {}, "Adadelta", {}, {("learning_rate", 16), ("rho", 16), ("epsilon", 16)}),
    ("Adamax", {}, "Adamax", {}, {("learning_rate", None), ("epsilon", None), ("epsilon_place", None)}),
    ("Nadam", {}, "NAdam", {}, {("learning_rate", None), ("epsilon", None), ("momentum_decay", None)}),
    ("SGD", {"learning_rate": 0.1}, "SGD", {"lr": 0.1}, set()),
    ("SGD", {"learning_rate": 0.1}, "SGD", {"lr": 0.01}, {("learning_rate", None)}),
    ("SGD", {"momentum": 0.9}, "SGD", {"lr": 0.01, "momentum": 0.9}, {("momentum_form", 7)}),
    ("SGD", {"momentum": 0.9}, "SGD", {"lr": 0.01}, {("momentum", 7)}),
    (
        "SGD",
        {"momentum": 0.9, "nesterov": True},
        "SGD",
        {"lr": 0.01, "momentum": 0.9},
        {("momentum_form", 7), ("nesterov", 8)},
    ),
    (
        "SGD",
        {"momentum": 0.9},
        "SGD",
        {"lr": 0.01, "momentum": 0.9, "dampening": 0.1},
        {("momentum_form", 7), ("dampening", 7)},
    ),
    ("SGD", {"weight_decay": 0.1}, "SGD", {"lr": 0.01, "weight_decay": 0.1}, {("weight_decay_mode", 9)}),
    ("SGD", {"weight_decay": 0.1}, "SGD", {"lr": 0.01}, {("weight_decay", 9)}),
    ("SGD", {"clipnorm": 1.0}, "SGD", {"lr": 0.01}, {("clip_norm", 18)}),
    ("SGD", {"global_clipnorm": 1.0}, "SGD", {"lr": 0.01}, {("clip_global_norm", 17)}),
    ("SGD", {"clipvalue": 1.0}, "SGD", {"lr": 0.01}, {("clip_value", None)}),
    ("SGD", {"use_ema": True}, "SGD", {"lr": 0.01}, {("ema", None)}),
    ("SGD", {"gradient_accumulation_steps": 4}, "SGD", {"lr": 0.01}, {("accumulation", 20)}),
    ("SGD", {}, "SGD", {"lr": 0.01, "maximize": True}, {("maximize", None)}),
    (
        "Adam",
        {"weight_decay": 0.1, "epsilon": 1e-8},
        "Adam",
        {"weight_decay": 0.1},
        {("weight_decay_mode", 12), ("epsilon_place", 11)},
    ),
    # torch's AdamW is its Adam with the decay that Keras's Adam has.
    ("Adam", {"weight_decay": 0.1, "epsilon": 1e-8}, "AdamW", {"weight_decay": 0.1}, {("epsilon_place", 11)}),
    (
        "Adam",
        {"amsgrad": True, "beta_1": 0.8, "beta_2": 0.99, "epsilon": 1e-8},
        "Adam",
        {},
        {("amsgrad", None), ("beta_1", None), ("beta_2", None), ("epsilon_place", 11)},
    ),
    (
        "RMSprop",
        {"centered": True, "rho": 0.99, "epsilon": 1e-8, "momentum": 0.9},
        "RMSprop",
        {"lr": 0.001, "momentum": 0.9},
        {("centered", 14), ("epsilon_place", 14), ("momentum_form", 14)},
    ),
    (
        "Adagrad",
        {"learning_rate": 0.01, "initial_accumulator_value": 0.0, "epsilon": 1e-10},
        "Adagrad",
        {"lr_decay": 0.1},
        {("rate_decay", 15), ("epsilon_place", 15)},
    ),
    ("SGD", {"learning_rate": 0.001}, "Adam", {}, {("kind", None)}),
    ("Lion", {}, "Adam", {}, {("kind", None), ("beta_2", None)}),
]


@pytest.fixture(scope="session")
def optimizer_cases(peers: dict[str, Peer]) -> list[tuple[Outline, Outline]]:
    """Outlines of one small layer with each case's optimizers."""
    left, right, shape = _dense({}, {})
    asked = [
        (
            {"model": "chain", "arguments": {"parts": [left], "shape": shape}, "optimizer": [keras, ours]},
            {"model": "chain", "arguments": {"parts": [right]}, "optimizer": [torch, theirs]},
        )
        for keras, ours, torch, theirs, _ in OPTIMIZER_CASES
    ]
    return outlines(peers, asked, {})


@pytest.mark.parametrize(
    "number",
    range(len(OPTIMIZER_CASES)),
    ids=[f"{c[0]} {c[1]} {c[2]} {c[3]}" for c in OPTIMIZER_CASES],
)
def test_settings_of_optimizers_are_named(
    optimizer_cases: list[tuple[Outline, Outline]], number: int
) -> None:
    result = audit(*optimizer_cases[number])
    assert {(one.setting, one.row) for one in result.differences} == OPTIMIZER_CASES[number][4]
    assert all(one.keras is None and one.torch is None for one in result.differences)
    assert result.unread == ()


def test_every_setting_of_optimizers_is_in_the_table(
    optimizer_cases: list[tuple[Outline, Outline]],
) -> None:
    for pair in optimizer_cases:
        for outline in pair:
            assert outline.optimizer is not None
            assert set(outline.optimizer.settings) <= set(OPTIMIZERS[outline.optimizer.kind])


def test_an_optimizer_that_is_not_known_is_not_read(peers: dict[str, Peer]) -> None:
    left, right, shape = _dense({}, {})
    keras = {"model": "chain", "arguments": {"parts": [left], "shape": shape}}
    torch = {"model": "chain", "arguments": {"parts": [right]}}
    asked = [
        ({**keras, "optimizer": ["Ftrl", {}]}, {**torch, "optimizer": ["Adam", {}]}),
        (keras, {**torch, "optimizer": ["Adam", {}]}),
    ]
    results = [audit(*pair) for pair in outlines(peers, asked, {})]
    assert [result.differences for result in results] == [(), ()]
    assert [[one.what for one in result.unread] for result in results] == [["optimizer"], ["optimizer"]]
    assert "Ftrl" in results[0].unread[0].why
    assert results[1].unread[0].why == "keras has none"


@pytest.fixture(scope="session")
def odd(peers: dict[str, Peer]) -> tuple[Outline, Outline]:
    """A model with everything that is not plain."""
    batch = np.zeros((2, 8), np.float32)
    asked: Ask = {"model": "Odd", "inputs": "x"}
    (pair,) = outlines(peers, [(asked, asked)], {"x": batch})
    return pair


def test_an_outline_sees_functions_sharing_and_what_is_unused(odd: tuple[Outline, Outline]) -> None:
    keras, torch = odd
    calls = [{info.path: info.calls for info in outline.layers} for outline in odd]
    assert calls[0] == {
        **dict.fromkeys(("first", "inner/deep", "inner/act", "scaled", "clipped", "frozen", "drop"), 1),
        "twice": 2,
        "never": 0,
    }
    assert calls[1] == {
        **dict.fromkeys(("first", "act", "inner.0", "inner.1", "scaled", "clipped", "frozen", "drop"), 1),
        "twice": 2,
        "never": 0,
    }
    functions = [
        [info.settings["function"] for info in outline.operations if info.kind == "activation"]
        for outline in odd
    ]
    assert sorted(functions[0]) == ["relu", "silu", "tanh"]
    # `act` is a layer that is nothing but one function, so it has that kind itself.
    assert functions[1] == ["relu", "tanh"]
    by_path = {info.path: info for info in torch.layers}
    assert (by_path["act"].kind, by_path["act"].settings) == ("activation", {"function": "silu"})
    assert keras.unused == ("never/kernel", "never/bias")
    assert torch.unused == ("never.weight", "never.bias")
    assert (keras.stochastic, torch.stochastic) == (("drop",), ("drop",))
    assert keras.outputs == torch.outputs == {"main": (2, 4), "side": (2, 8)}
    assert keras.order[:4] == ("first", "first/activation", "odd/tanh", "twice")
    tied = {info.name: info.tied_to for info in torch.tensors if info.tied_to}
    assert tied == {"tied.weight": "twice.weight", "tied.bias": "twice.bias"}
    frozen = {info.name for info in (*keras.tensors, *torch.tensors) if not info.trainable}
    assert frozen == {"frozen/kernel", "frozen/bias", "frozen.weight", "frozen.bias"}
    assert by_path["clipped"].overridden and not by_path["first"].overridden


def test_what_no_one_knows_is_not_read_and_the_rest_is(odd: tuple[Outline, Outline]) -> None:
    result = audit(*odd)
    assert {(one.keras, one.torch, one.what) for one in result.unread} == {
        ("scaled", None, "layer"),
        ("clipped", None, "layer"),
        ("never", None, "layer"),
        (None, "scaled", "layer"),
        (None, "clipped", "layer"),
        (None, "never", "layer"),
    }
    assert {(one.setting, one.row) for one in result.differences} == {
        ("kernel_initializer", 43),
        ("bias_initializer", 43),
    }
    assert {(pair.keras, pair.torch) for pair in result.pairs} == {
        ("first", "first"),
        ("first/activation", "relu"),
        ("odd/tanh", "tanh"),
        ("twice", "twice"),
        ("odd/silu", "act"),
        ("inner/deep", "inner.0"),
        ("inner/act", "inner.1"),
        ("drop", "drop"),
        ("frozen", "frozen"),
        ("clipped", "clipped"),
    }


def test_layers_that_a_mapping_pairs_are_compared(nets: dict[str, tuple[Outline, Outline]]) -> None:
    crossed = [LayerPair(keras="conv", torch="conv2"), LayerPair(keras="conv2", torch="conv")]
    assert named(audit(*nets["equal"], crossed)) == {
        ("conv - conv2: filters", None),
        ("conv2 - conv: filters", None),
    }
    straight = [LayerPair(keras="conv", torch="conv"), LayerPair(keras="conv2", torch="conv2")]
    assert audit(*nets["equal"], straight).differences == ()


def _without(outline: Outline, path: str) -> Outline:
    layers = tuple(info for info in outline.layers if info.path != path)
    return outline.model_copy(
        update={"layers": layers, "order": tuple(each for each in outline.order if each != path)}
    )


@pytest.mark.parametrize(
    ("path", "kind", "changes"),
    [
        ("leaky", "activation", "forward"),
        ("drop", "dropout", "training mode"),
        ("norm", "batch_norm", "forward"),
    ],
)
def test_a_layer_that_one_side_has_not_has_no_counterpart(
    nets: dict[str, tuple[Outline, Outline]], path: str, kind: str, changes: str
) -> None:
    keras, torch = nets["equal"]
    (found,) = audit(_without(keras, path), torch).differences
    assert (found.setting, found.kind, found.changes, found.keras) == ("counterpart", kind, changes, None)
    assert found.fix_torch == "remove it" and found.fix_keras.startswith("add ")


def _pooled(*functions: str) -> list[LayerInfo]:
    """Functions, a ring of zeros, and a maximum over it."""
    shape, larger = (2, 8, 8, 3), (2, 10, 10, 3)
    settings: dict[str, Any] = {"size": (3, 3), "strides": (2, 2), "padding": "valid", "ceil_mode": False}
    return [
        *(
            LayerInfo(
                path=name,
                kind="activation",
                type="",
                settings={"function": name},
                inputs=(shape,),
                outputs=(shape,),
            )
            for name in functions
        ),
        LayerInfo(
            path="pad",
            kind="zero_pad",
            type="",
            settings={"padding": (1, 1, 1, 1)},
            inputs=(shape,),
            outputs=(larger,),
        ),
        LayerInfo(path="pool", kind="max_pool2d", type="", settings=settings, inputs=(larger,)),
    ]


def test_zeros_before_a_maximum_are_its_padding_only_after_a_relu() -> None:
    for functions, values in (
        ((), "zeros"),
        (("tanh",), "zeros"),
        (("relu",), "lowest"),
        (("relu", "elu"), "zeros"),
    ):
        item = items_of(_pooled(*functions), "tensorflow")[-1]
        assert (item.kind, effective(item, item)["padding"]) == ("max_pool2d", (1, 0, 1, 0))
        assert effective(item, item)["padding_values"] == values


def test_another_order_of_calls_is_not_passed_over(nets: dict[str, tuple[Outline, Outline]]) -> None:
    keras, torch = nets["equal"]
    order = list(torch.order)
    order.remove("leaky")
    order.insert(order.index("conv2"), "leaky")
    result = audit(keras, torch.model_copy(update={"order": tuple(order)}))
    assert [(one.keras, one.torch) for one in result.unread if one.what == "order"] in (
        [("leaky", "leaky")],
        [("conv2", "conv2")],
    )


def _zero_padded(pads: tuple[int, ...], padding: Any) -> list[LayerInfo]:
    before = LayerInfo(
        path="pad",
        kind="zero_pad",
        type="",
        settings={"padding": pads},
        inputs=((2, 8, 8, 3),),
        outputs=((2, 8 + pads[0] + pads[1], 8 + pads[2] + pads[3], 3),),
    )
    settings: dict[str, Any] = {"kernel_size": (3, 3), "strides": (2, 2), "padding": padding}
    return [before, LayerInfo(path="conv", kind="conv2d", type="", settings=settings, inputs=before.outputs)]


def test_zero_padding_before_a_convolution_is_the_convolutions() -> None:
    (item,) = items_of(_zero_padded((1, 1, 1, 1), "valid"), "tensorflow")
    # The cell after, which no window of stride 2 reaches, does not count.
    assert effective(item, item)["padding"] == (1, 0, 1, 0)
    (item,) = items_of(_zero_padded((0, 1, 0, 1), "valid"), "tensorflow")
    assert effective(item, item)["padding"] == (0, 1, 0, 1)


RULES = {
    "uniform_fan_in": lambda rng, fan_in, fan_out, shape: rng.uniform(-1, 1, shape) / np.sqrt(fan_in),
    "glorot_uniform": lambda rng, fan_in, fan_out, shape: (
        rng.uniform(-1, 1, shape) * np.sqrt(6 / (fan_in + fan_out))
    ),
    "he_uniform": lambda rng, fan_in, fan_out, shape: rng.uniform(-1, 1, shape) * np.sqrt(6 / fan_in),
    "normal_0.02": lambda rng, fan_in, fan_out, shape: rng.normal(0, 0.02, shape),
    "normal_1": lambda rng, fan_in, fan_out, shape: rng.normal(0, 1, shape),
    "he_normal_uncut": lambda rng, fan_in, fan_out, shape: rng.normal(0, np.sqrt(2 / fan_in), shape),
    "he_normal_uncut of fan-out": lambda rng, fan_in, fan_out, shape: rng.normal(
        0, np.sqrt(2 / fan_out), shape
    ),
    "orthogonal": lambda rng, fan_in, fan_out, shape: np.linalg.qr(rng.normal(size=shape))[0],
    "zeros": lambda rng, fan_in, fan_out, shape: np.zeros(shape),
    "constant_0.25": lambda rng, fan_in, fan_out, shape: np.full(shape, 0.25),
    None: lambda rng, fan_in, fan_out, shape: rng.normal(0, 0.0337, shape),
}


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_initial_values_tell_their_rule(rule: str | None) -> None:
    for seed in range(20):
        values = RULES[rule](np.random.default_rng(seed), 64, 32, (64, 32))
        assert drawn(values, 64, 32, "uniform_fan_in") == rule
    assert drawn(np.full(3, np.nan), 3, 1, "zeros") is None


def lint(*arguments: str) -> subprocess.CompletedProcess[str]:
    models = "parity_tests.foreign_models.lint_"
    sides = [f"--keras={models}keras:made_equal", f"--torch={models}torch:MadeEqual"]
    return subprocess.run(
        [sys.executable, "-m", "common.cli", "lint", *sides, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--input-shape", "12,a"], "--input-shape is like 32,32,3"),
        (["--input-shape", "12,0"], "--input-shape is like 32,32,3"),
        (["--input-shape", "x=12:text"], "--input-shape is like 32,32,3"),
        (["--data", "nowhere.npz"], "--data nowhere.npz: cannot be read"),
        (["--torch-optimizer", "nonsense"], "received 'nonsense'"),
        (["--mapping", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_wrong_flags_are_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in Cli(tmp_path, capsys).refused("lint", "--keras=a:b", "--torch=a:b", *arguments)


@pytest.mark.exhaustive
def test_the_command_tells_by_exit_code_and_in_words(tmp_path: Path) -> None:
    done = lint("--input-shape", "12,12,3")
    assert (done.returncode, done.stderr) == (0, "")
    assert "no differences in 9 pairs of layers" in done.stdout
    assert "not read: layer of bn" in done.stdout
    np.savez(tmp_path / "data.npz", x=IMAGES["last"], y=np.zeros(2))
    models = "parity_tests.foreign_models.lint_"
    optimizers = [
        f"--keras-optimizer={models}keras:stock_adam",
        f"--torch-optimizer={models}torch:stock_adam",
    ]
    stock = [
        f"--keras={models}keras:stock",
        f"--torch={models}torch:Stock",
        "--data",
        str(tmp_path / "data.npz"),
    ]
    done = lint(*stock, *optimizers)
    assert (done.returncode, done.stderr) == (1, "")
    assert "12 differences of 10 kinds, 1 of layout only" in done.stdout
    assert "in Keras momentum=0.9; in PyTorch momentum=0.01" in done.stdout
    told = json.loads(lint(*stock, *optimizers, "--json").stdout)
    assert {one["row"] for one in told["differences"]} == {row for _, row in STOCK}
    done = lint("--input-shape", "12,12,4")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr


def _said(arguments: Ask) -> str:
    return (
        ",".join(f"{name}={value}" for name, value in arguments.items() if not isinstance(value, dict))
        or "base"
    )


@pytest.mark.parametrize(
    "number", range(len(CASES)), ids=[f"{c[0].__name__[1:]} {_said(c[1])} {_said(c[2])}" for c in CASES]
)
def test_a_setting_that_is_changed_on_one_side_is_named(
    cases: list[tuple[Outline, Outline]], number: int
) -> None:
    result = audit(*cases[number])
    assert {(one.setting, one.row) for one in result.differences} == CASES[number][3]
    assert result.unread == ()


def test_each_setting_of_the_tables_is_read_on_both_sides(cases: list[tuple[Outline, Outline]]) -> None:
    """A setting that a reader gives and the table has not would be passed over in silence."""
    for pair in cases:
        for outline in pair:
            for item in items_of(outline.layers, outline.framework):
                made = {"padding"} if item.kind.endswith("transpose") else set()
                known = {*LAYERS[item.kind], *READ_WITH_OTHERS, *made}
                assert set(item.info.settings) <= known, (item.path, set(item.info.settings) - known)


# Settings of the tables that no pair of layers above can differ in, and why.
NEVER_ALONE = {
    "antialias": "only a function of torch and Keras's Resizing have it",
    "order": "in the net",
    "sides": "Keras's adaptive poolings are new",
    "value": "no Keras layer has it",
    "whole": "Keras has a class of its own for it",
}


def test_every_setting_of_the_tables_has_a_case_that_changes_it() -> None:
    changed = {setting for case in CASES for setting, _ in case[3]}
    assert {name for table in LAYERS.values() for name in table} - changed == set(NEVER_ALONE)
    changed = {setting for case in OPTIMIZER_CASES for setting, _ in case[4]}
    assert {name for table in OPTIMIZERS.values() for name in table} - changed == {
        "decay_mask",
        "loss_scale",
        "schedule",
    }


@pytest.mark.parametrize(
    ("setting", "value", "row"),
    [("schedule", "ExponentialDecay()", 22), ("loss_scale", 32768.0, 49), ("decay_mask", "all but bias", 9)],
)
def test_settings_that_the_stock_classes_do_not_have_alone(
    optimizer_cases: list[tuple[Outline, Outline]], setting: str, value: Any, row: int
) -> None:
    keras, torch = optimizer_cases[0]
    assert keras.optimizer is not None and torch.optimizer is not None
    both = [
        keras.optimizer.settings | {"weight_decay": 0.1},
        torch.optimizer.settings | {"weight_decay": 0.1},
    ]
    both[0]["weight_decay_mode"] = both[1]["weight_decay_mode"]
    plain = [
        side.model_copy(update={"optimizer": side.optimizer.model_copy(update={"settings": settings})})
        for side, settings in zip((keras, torch), both, strict=True)
    ]
    assert audit(*plain).differences == ()
    optimizer = plain[0].optimizer.model_copy(update={"settings": both[0] | {setting: value}})
    (found,) = audit(plain[0].model_copy(update={"optimizer": optimizer}), plain[1]).differences
    assert (found.setting, found.row, found.keras_value) == (setting, row, value)


def test_an_outline_leaves_the_model_and_the_framework_alone(peers: dict[str, Peer]) -> None:
    """Also after a pass that failed."""
    for name in ("tensorflow", "torch"):
        found = peers[name](
            "lint:left_alone", {}, {"x": np.ones((2, 8), np.float32), "wrong": np.ones((2, 5))}
        )
        assert found and all(bool(value.all()) for value in found.values()), (name, found)


def test_every_row_that_is_named_has_its_words() -> None:
    tables = [*LAYERS.values(), *OPTIMIZERS.values()]
    assert {m.row for table in tables for m in table.values() if m.row is not None} | {32, 44} <= set(ROWS)
    assert not PLUMBING & set(LAYERS)
