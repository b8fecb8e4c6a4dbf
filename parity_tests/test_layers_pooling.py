"""Pooling, padding and patches: TensorFlow, PyTorch, NumPy and the frameworks' own layers agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from parity.common.base.errors import SpecError
from parity_tests.helpers.images import (
    FEW,
    Array,
    against_keras,
    against_torch,
    apart,
    check_empty,
    conventions,
    draws,
    ours,
)
from parity_tests.helpers.layers import Case, check_layer
from parity_tests.peers import Peer
from parity_tests.tables.vocabulary import Vocabulary

pytestmark = pytest.mark.usefixtures("peers")


def largest(values: Array) -> Array:
    """Maximum over all axes but the last, by the real part."""
    flat = values.reshape(-1, values.shape[-1])
    return flat[flat.real.argmax(0), np.arange(flat.shape[1])]


def one_axis(layer: dict[str, Any], side: int, axis: int) -> list[tuple[range, int]]:
    """For each window of an axis: the input cells under it, and how many with the padding."""
    size = layer["size"] if isinstance(layer["size"], int) else layer["size"][axis]
    stride = layer["strides"] or size
    padding = layer["padding"]
    if padding == "same":
        total = max((-(-side // stride) - 1) * stride + size - side, 0)
        before, after = total // 2, total - total // 2
    elif padding == "valid":
        before = after = 0
    else:
        before, after = (padding, padding) if isinstance(padding, int) else padding[axis]
    windows = []
    start = -before
    while start + size <= side + after:
        windows.append((range(max(start, 0), min(start + size, side)), size))
        start += stride
    # With ceil_mode part of a window more, where cells are left and it begins before the padding after them.
    if layer["ceil_mode"] and start - stride + size < side + after and start < side:
        windows.append((range(max(start, 0), side), side + after - start))
    return windows


def pooled(x: Array, layer: dict[str, Any], average: bool, count_padding: bool) -> Array:
    rows, columns = one_axis(layer, x.shape[1], 0), one_axis(layer, x.shape[2], 1)
    y = np.zeros((len(x), len(rows), len(columns), x.shape[-1]), x.dtype)
    for sample in range(len(x)):
        for i, (down, high) in enumerate(rows):
            for j, (right, wide) in enumerate(columns):
                cells = x[sample][np.ix_(down, right)]
                if average:
                    count = high * wide if count_padding else len(down) * len(right)
                    y[sample, i, j] = cells.sum((0, 1)) / count
                else:
                    y[sample, i, j] = largest(cells)
    return y


sizes = st.integers(2, 3)
frames = st.tuples(st.integers(0, 1), st.integers(0, 1))


@given(
    average=st.booleans(),
    sides=st.tuples(st.integers(4, 7), st.integers(4, 7)),
    size=st.one_of(sizes, st.tuples(sizes, sizes)),
    strides=st.sampled_from([None, 1, 2, 3]),
    padding=st.one_of(st.sampled_from(["same", "valid", 1]), st.tuples(frames, frames)),
    ceil_mode=st.booleans(),
    convention=conventions,
    draw=draws,
)
@FEW
def test_pooling_of_images(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    average: bool,
    sides: Any,
    size: Any,
    strides: int | None,
    padding: Any,
    ceil_mode: bool,
    convention: str,
    draw: int,
) -> None:
    # A stride for each axis is that of the size.
    assume(strides is not None or isinstance(size, int))
    layer = {"size": size, "strides": strides, "padding": padding, "ceil_mode": ceil_mode}
    kind = "average_pool2d" if average else "max_pool2d"
    case = Case(({"kind": kind, **layer},), (*sides, 2), convention, draw=draw)
    check_layer(
        peers, vocabulary, case, lambda x, t: pooled(x, layer, average, count_padding=convention == "torch")
    )


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("padding", ["same", "valid", 1, ((0, 2),)])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_pooling_of_sequences(
    peers: dict[str, Peer], vocabulary: Vocabulary, average: bool, padding: Any, ceil_mode: bool
) -> None:
    layer = {"size": 3, "strides": 2, "padding": padding, "ceil_mode": ceil_mode}
    kind = "average_pool1d" if average else "max_pool1d"
    case = Case(({"kind": kind, **layer},), (8, 3), "torch")
    flat = {**layer, "size": (1, 3)}
    if padding == 1 or isinstance(padding, tuple):
        flat["padding"] = ((0, 0), (1, 1) if padding == 1 else padding[0])

    def numpy(x: Array, t: dict[str, Array]) -> Array:
        # One row only: the stride that follows it finds nothing.
        return pooled(x[:, None], flat, average, count_padding=True)[:, 0]

    check_layer(peers, vocabulary, case, numpy)


@given(shape=st.lists(st.integers(1, 4), min_size=2, max_size=4).map(tuple), draw=draws)
@FEW
def test_global_pooling(peers: dict[str, Peer], vocabulary: Vocabulary, shape: Any, draw: int) -> None:
    axes = tuple(range(1, len(shape)))
    check_layer(
        peers,
        vocabulary,
        Case(({"kind": "global_average_pool"},), shape, draw=draw),
        lambda x, t: x.mean(axes),
    )
    check_layer(
        peers,
        vocabulary,
        Case(({"kind": "global_max_pool"},), shape, draw=draw),
        lambda x, t: np.stack([largest(sample) for sample in x]),
    )


@given(padding=st.one_of(st.integers(0, 2), st.tuples(frames, frames)), draw=draws)
@FEW
def test_zero_padding(peers: dict[str, Peer], vocabulary: Vocabulary, padding: Any, draw: int) -> None:
    pads = ((padding,) * 2,) * 2 if isinstance(padding, int) else padding
    case = Case(({"kind": "zero_pad2d", "padding": padding},), (3, 2, 2), draw=draw)
    check_layer(peers, vocabulary, case, lambda x, t: np.pad(x, [(0, 0), *pads, (0, 0)]))


@given(size=st.integers(1, 3), rows=st.integers(1, 3), columns=st.integers(1, 3), draw=draws)
@FEW
def test_patchify(
    peers: dict[str, Peer], vocabulary: Vocabulary, size: int, rows: int, columns: int, draw: int
) -> None:
    def numpy(x: Array, t: dict[str, Array]) -> Array:
        patches = [
            x[:, i * size : (i + 1) * size, j * size : (j + 1) * size].reshape(len(x), -1)
            for i in range(rows)
            for j in range(columns)
        ]
        return np.stack(patches, 1)

    case = Case(({"kind": "patchify", "size": size},), (rows * size, columns * size, 2), draw=draw)
    check_layer(peers, vocabulary, case, numpy)


KERAS = [
    ("max_pool2d", "MaxPooling2D", {"padding": "same", "strides": 2}, {"pool_size": 3}),
    ("max_pool2d", "MaxPooling2D", {}, {"pool_size": 2}),
    ("max_pool1d", "MaxPooling1D", {"padding": "same", "strides": 2}, {"pool_size": 3}),
    ("average_pool2d", "AveragePooling2D", {"padding": "same", "strides": 2}, {"pool_size": 3}),
    ("average_pool1d", "AveragePooling1D", {"padding": "same", "strides": 3}, {"pool_size": 2}),
    ("global_average_pool", "GlobalAveragePooling2D", {}, {}),
    ("global_max_pool", "GlobalMaxPooling2D", {}, {}),
    ("zero_pad2d", "ZeroPadding2D", {"padding": ((1, 0), (2, 1))}, {}),
]


@pytest.mark.parametrize(("kind", "stock", "layer", "size"), KERAS)
def test_stock_keras(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    kind: str,
    stock: str,
    layer: dict[str, Any],
    size: dict[str, Any],
) -> None:
    own = {"size": size["pool_size"]} if size else {}
    case = Case(({"kind": kind, **own, **layer},), (7, 3) if "1d" in kind else (7, 6, 3), "keras")
    against_keras(peers, vocabulary, case, stock, **size, **layer)


TORCH = [
    ("max_pool2d", "MaxPool2d", {"stride": 2, "padding": 1}),
    ("max_pool2d", "MaxPool2d", {"stride": 2, "padding": 1, "ceil_mode": True}),
    ("max_pool1d", "MaxPool1d", {"stride": 2}),
    ("average_pool2d", "AvgPool2d", {"stride": 2, "padding": 1}),
    ("average_pool2d", "AvgPool2d", {"stride": 2, "padding": 1, "ceil_mode": True}),
    ("average_pool2d", "AvgPool2d", {"stride": 3, "ceil_mode": True}),
    ("average_pool1d", "AvgPool1d", {"stride": 2, "padding": 1}),
]


@pytest.mark.parametrize(("kind", "stock", "arguments"), TORCH)
def test_stock_torch(
    peers: dict[str, Peer], vocabulary: Vocabulary, kind: str, stock: str, arguments: dict[str, Any]
) -> None:
    layer = {
        "kind": kind,
        "size": 3,
        "strides": arguments["stride"],
        "padding": arguments.get("padding", 0),
        "ceil_mode": arguments.get("ceil_mode", False),
    }
    case = Case((layer,), (8, 3) if "1d" in kind else (8, 6, 3), "torch")
    against_torch(peers, vocabulary, case, stock, kernel_size=3, **arguments)


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("average_pool2d", {"padding": 1, "count_padding": True}, {"padding": 1, "count_padding": False}),
        ("average_pool2d", {"padding": "same", "strides": 2}, {"padding": ((1, 0), (1, 0)), "strides": 2}),
        ("max_pool2d", {"padding": "same", "strides": 2}, {"padding": ((1, 0), (1, 0)), "strides": 2}),
    ],
)
def test_settings_matter(
    peers: dict[str, Peer], kind: str, one: dict[str, Any], other: dict[str, Any]
) -> None:
    cases = [Case(({"kind": kind, "size": 3, **x},), (6, 6, 2)) for x in (one, other)]
    assert apart(peers, *cases) > 1e-6


def test_the_conventions_count_padding_differently(peers: dict[str, Peer]) -> None:
    layers = ({"kind": "average_pool2d", "size": 3, "padding": 1},)
    assert apart(peers, Case(layers, (4, 4, 2), "keras"), Case(layers, (4, 4, 2), "torch")) > 1e-6


def test_a_wrong_formula_is_seen(peers: dict[str, Peer]) -> None:
    layer = {"size": 2, "strides": 2, "padding": "valid", "ceil_mode": False}
    case = Case(({"kind": "max_pool2d", **layer},), (4, 4, 2))
    with pytest.raises(AssertionError, match="numpy y"):
        check_layer(peers, Vocabulary(), case, lambda x, t: pooled(x, layer, True, count_padding=True))


def test_of_equal_values_the_first_gets_the_gradient(peers: dict[str, Peer]) -> None:
    """Common in practice: after a ReLU most values are zero."""
    case = Case(({"kind": "max_pool2d", "size": 3, "strides": 2, "padding": 1},), (5, 5, 1), batch=1)
    arrays = {**case.arrays(), "x": np.ones((1, 5, 5, 1)), "cotangent": np.ones((1, 3, 3, 1))}
    expected = np.zeros((5, 5))
    expected[np.ix_([0, 1, 3], [0, 1, 3])] = 1
    for framework in ("tensorflow", "torch"):
        assert (ours(peers, framework, case, arrays)["dx"][0, :, :, 0] == expected).all()


@pytest.mark.parametrize(
    "layer",
    [
        {"kind": "max_pool2d"},
        {"kind": "max_pool2d", "size": 3, "padding": "same", "strides": 2},
        {"kind": "average_pool2d", "size": 3, "padding": "same", "strides": 2},
        {"kind": "global_average_pool"},
        {"kind": "global_max_pool"},
        {"kind": "zero_pad2d"},
        {"kind": "patchify"},
    ],
)
def test_no_samples(peers: dict[str, Peer], layer: dict[str, Any]) -> None:
    check_empty(peers, layer, (6, 4, 3))


@pytest.mark.parametrize("kind", ["max_pool1d", "average_pool1d"])
def test_no_sequences(peers: dict[str, Peer], kind: str) -> None:
    check_empty(peers, {"kind": kind, "padding": 1}, (6, 3))


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        ({"kind": "max_pool2d", "size": 9}, ("size 9", "(6, 6, 4)")),
        ({"kind": "max_pool2d", "padding": 2}, ("padding 2", "size 2")),
        ({"kind": "average_pool2d", "padding": [[1, 1]]}, ("padding", "2 entries")),
        ({"kind": "zero_pad2d", "padding": [[1, 1]]}, ("padding", "2 entries")),
        ({"kind": "max_pool1d"}, ("sequence", "(6, 6, 4)")),
    ],
)
def test_what_does_not_fit_is_refused(layer: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(SpecError) as error:
        Case((layer,), (6, 6, 4)).model.tree()
    assert all(word in str(error.value) for word in words), error.value
