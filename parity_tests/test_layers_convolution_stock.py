"""Convolutions against the frameworks' own; in graphs, on no samples; their initial values and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from parity.common.base.errors import SpecError
from parity.common.base.rng import derive_key
from parity.common.spec import layers as spec
from parity.common.spec.initializers import initial_value
from parity_tests.helpers.images import CONV1D, CONV2D, against_keras, against_torch, check_empty
from parity_tests.helpers.layers import Case, deviation
from parity_tests.peers import Peer
from parity_tests.tables.vocabulary import Vocabulary

pytestmark = pytest.mark.usefixtures("peers")

# Each in its defaults where the arguments do not say otherwise.
KERAS = [
    (
        "conv2d",
        "Conv2D",
        {"filters": 4, "kernel_size": 3, "strides": 2, "padding": "same"},
        ("kernel", "bias"),
    ),
    (
        "conv2d",
        "Conv2D",
        {"filters": 4, "kernel_size": (2, 3), "strides": (2, 1), "padding": "same"},
        ("kernel", "bias"),
    ),
    ("conv2d", "Conv2D", {"filters": 4, "kernel_size": 3, "padding": "valid"}, ("kernel", "bias")),
    (
        "conv1d",
        "Conv1D",
        {"filters": 4, "kernel_size": 4, "strides": 3, "padding": "same"},
        ("kernel", "bias"),
    ),
    (
        "depthwise_conv2d",
        "DepthwiseConv2D",
        {"depth_multiplier": 2, "kernel_size": 3, "strides": 2, "padding": "same"},
        ("kernel", "bias"),
    ),
    (
        "separable_conv2d",
        "SeparableConv2D",
        {"filters": 5, "depth_multiplier": 2, "kernel_size": 3, "strides": 2, "padding": "same"},
        ("depthwise_kernel", "pointwise_kernel", "bias"),
    ),
    *[
        (
            "conv2d_transpose",
            "Conv2DTranspose",
            {
                "filters": 3,
                "kernel_size": kernel,
                "strides": stride,
                "padding": padding,
                "output_padding": extra,
            },
            ("kernel", "bias"),
        )
        for kernel, stride, padding, extra in [
            (3, 2, "same", None),
            (2, 3, "same", None),
            (4, 2, "same", None),
            (3, 2, "same", 1),
            (3, 2, "valid", None),
            (2, 3, "valid", None),
            (3, 2, "valid", 1),
        ]
    ],
    (
        "conv1d_transpose",
        "Conv1DTranspose",
        {"filters": 3, "kernel_size": 3, "strides": 2, "padding": "same"},
        ("kernel", "bias"),
    ),
]


@pytest.mark.parametrize(
    ("kind", "stock", "arguments", "tensors"), KERAS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_stock_keras(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    kind: str,
    stock: str,
    arguments: dict[str, Any],
    tensors: tuple[str, ...],
) -> None:
    shape = (8, 2) if "1d" in kind else (6, 5, 2)
    case = Case(({"kind": kind, **arguments},), shape, "keras", draw=3)
    against_keras(peers, vocabulary, case, stock, *tensors, **arguments)


TORCH = [
    ("conv2d", "Conv2d", {"stride": 2, "padding": 1}, {"strides": 2, "padding": "same"}, (7, 6, 4), 3),
    (
        "conv2d",
        "Conv2d",
        {"padding": "same", "dilation": 2},
        {"padding": "same", "dilation": 2},
        (7, 6, 4),
        3,
    ),
    ("conv2d", "Conv2d", {"padding": "same"}, {"padding": "same"}, (7, 6, 4), 2),
    (
        "conv2d",
        "Conv2d",
        {"stride": 2, "groups": 2},
        {"strides": 2, "groups": 2, "padding": "valid"},
        (7, 6, 4),
        3,
    ),
    ("conv1d", "Conv1d", {"stride": 2, "padding": 2}, {"strides": 2, "padding": 2}, (7, 4), 3),
    (
        "conv2d_transpose",
        "ConvTranspose2d",
        {"stride": 2, "padding": 1, "output_padding": 1},
        {"strides": 2, "padding": 1, "output_padding": 1},
        (4, 3, 4),
        3,
    ),
    (
        "conv2d_transpose",
        "ConvTranspose2d",
        {"stride": 2, "padding": 2, "groups": 2, "dilation": 2},
        {"strides": 2, "padding": 2, "groups": 2, "dilation": 2},
        (4, 3, 4),
        3,
    ),
    ("conv1d_transpose", "ConvTranspose1d", {"stride": 3}, {"strides": 3, "padding": 0}, (4, 4), 2),
]


@pytest.mark.parametrize(
    ("kind", "stock", "arguments", "layer", "shape", "kernel"),
    TORCH,
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_stock_torch(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    kind: str,
    stock: str,
    arguments: dict[str, Any],
    layer: dict[str, Any],
    shape: tuple[int, ...],
    kernel: int,
) -> None:
    case = Case(({"kind": kind, "filters": 6, "kernel_size": kernel, **layer},), shape, "torch", draw=4)
    channels = {"in_channels": shape[-1], "out_channels": 6, "kernel_size": kernel}
    layout = CONV1D if "1d" in kind else CONV2D
    against_torch(peers, vocabulary, case, stock, layout, **channels, **arguments)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        ({"kind": "conv2d", "filters": 4, "strides": 2}, (6, 5, 4)),
        ({"kind": "conv2d", "filters": 4, "dilation": 2}, (6, 5, 4)),
        ({"kind": "conv2d", "filters": 4, "groups": 2}, (6, 5, 4)),
        ({"kind": "conv1d", "filters": 4}, (6, 4)),
        ({"kind": "depthwise_conv2d"}, (6, 5, 4)),
        ({"kind": "depthwise_conv2d", "strides": (2, 1)}, (6, 5, 4)),
        ({"kind": "separable_conv2d", "filters": 3, "strides": 2}, (6, 5, 4)),
        ({"kind": "conv2d_transpose", "filters": 3, "strides": 2}, (6, 5, 4)),
        ({"kind": "conv1d_transpose", "filters": 3, "strides": 2}, (6, 4)),
    ],
)
def test_no_samples(peers: dict[str, Peer], layer: dict[str, Any], shape: tuple[int, ...]) -> None:
    check_empty(peers, layer, shape)


@pytest.mark.parametrize("kind", ["conv2d", "depthwise_conv2d", "separable_conv2d", "conv2d_transpose"])
def test_float32_in_a_graph(peers: dict[str, Peer], kind: str) -> None:
    """TensorFlow rewrites float32 graphs: what comes out must be what single operations gave in float64."""
    filters = {} if kind == "depthwise_conv2d" else {"filters": 4}
    layer = {"kind": kind, "kernel_size": (3, 2), "strides": 2, "padding": 1, **filters}
    case = Case((layer, {"kind": "activation", "function": "elu"}), (6, 7, 4))
    exact = case.arrays()
    rounded = {n: v.astype("float32") if v.dtype == np.float64 else v for n, v in exact.items()}
    expected = peers["torch"]("image:in_a_graph", case.facts, exact)
    results = peers["tensorflow"]("image:in_a_graph", {**case.facts, "precision": "float32"}, rounded)
    for name, value in results.items():
        assert value.dtype == np.float32
        # Sums of some hundred products, each rounded to 6e-8 of the largest.
        assert deviation(value.astype("float64"), expected[name]) < 1e-6, name


# Initial values: fans as Keras's compute_fans and PyTorch's _calculate_fan_in_and_fan_out give them.
@pytest.mark.parametrize(
    ("layer", "convention", "fans"),
    [
        (spec.Conv2D(filters=6, groups=2), "keras", (18, 54)),
        (spec.Conv2D(filters=6, groups=2), "torch", (18, 54)),
        (spec.Conv1D(filters=6, kernel_size=5), "torch", (20, 30)),
        (spec.DepthwiseConv2D(depth_multiplier=3), "keras", (36, 27)),
        (spec.DepthwiseConv2D(depth_multiplier=3), "torch", (9, 108)),
        (spec.SeparableConv2D(filters=5), "torch", (9, 36)),
        (spec.Conv2DTranspose(filters=6), "keras", (54, 36)),
        (spec.Conv2DTranspose(filters=6), "torch", (54, 36)),
    ],
)
def test_fans(layer: Any, convention: str, fans: tuple[int, int]) -> None:
    shape = (8, 4) if layer.rank == 1 else (8, 8, 4)
    kernel = layer.resolve(convention).parameters(shape)[0]
    assert (kernel.fan_in, kernel.fan_out) == fans
    limit = (6 / sum(fans)) ** 0.5 if convention == "keras" else fans[0] ** -0.5
    values = initial_value(kernel, derive_key(1, "init", "kernel"))
    assert 0.8 * limit < np.abs(values).max() <= limit


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        ({"kind": "conv2d", "filters": 3, "groups": 2}, ("groups 2", "4 channels", "3 filters")),
        ({"kind": "conv2d", "filters": 3, "kernel_size": [3, 3, 3]}, ("kernel_size", "2 entries")),
        (
            {"kind": "conv2d", "filters": 3, "kernel_size": 9, "padding": "valid"},
            ("kernel_size 9", "(6, 6, 4)"),
        ),
        ({"kind": "conv2d", "filters": 3, "padding": "full"}, ("padding", "'same'", "'full'")),
        ({"kind": "conv1d", "filters": 3}, ("sequence", "(6, 6, 4)")),
        ({"kind": "conv2d_transpose", "filters": 3, "output_padding": 1}, ("output_padding", "stride")),
        (
            {"kind": "conv2d_transpose", "filters": 3, "kernel_size": 1, "padding": 4},
            ("padding 4", "(6, 6, 4)"),
        ),
    ],
)
def test_what_does_not_fit_is_refused(layer: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(SpecError) as error:
        Case((layer,), (6, 6, 4)).model.tree()
    assert all(word in str(error.value) for word in words), error.value
