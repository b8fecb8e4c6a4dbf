"""Convolutions: TensorFlow, PyTorch, NumPy and the frameworks' own layers agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from parity_tests.helpers.images import FEW, Array, apart, conventions, draws
from parity_tests.helpers.layers import Case, check_layer
from parity_tests.peers import Peer
from parity_tests.tables.vocabulary import Vocabulary

pytestmark = pytest.mark.usefixtures("peers")
Pads = list[tuple[int, int]]


# NumPy, with a sequence as an image of height 1.


def two(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else tuple(value)


def zero_pads(layer: dict[str, Any], sides: tuple[int, ...], convention: str) -> Pads:
    """As the frameworks document it: tf.nn's guide on padding; padding=k//2 and the rest after in PyTorch."""
    padding = layer.get("padding", "same")
    pads = []
    for axis, side in enumerate(sides):
        span = (two(layer["kernel_size"])[axis] - 1) * two(layer.get("dilation", 1))[axis] + 1
        stride = two(layer.get("strides", 1))[axis]
        if padding == "valid":
            pads.append((0, 0))
        elif padding == "same":
            out = -(-side // stride)
            total = max((out - 1) * stride + span - side, 0) if convention == "keras" else span - 1
            pads.append((total // 2, total - total // 2))
        else:
            pads.append((padding, padding) if isinstance(padding, int) else tuple(padding[axis]))
    return pads


def windows(x: Array, layer: dict[str, Any], pads: Pads) -> Array:
    """(batch, height, width, kernel height, kernel width, channels)."""
    x = np.pad(x, [(0, 0), *pads, (0, 0)])
    (high, wide), (down, right) = two(layer["kernel_size"]), two(layer.get("strides", 1))
    dilation = two(layer.get("dilation", 1))
    rows = (x.shape[1] - (high - 1) * dilation[0] - 1) // down + 1
    columns = (x.shape[2] - (wide - 1) * dilation[1] - 1) // right + 1
    result = np.zeros((len(x), rows, columns, high, wide, x.shape[-1]), x.dtype)
    for i in range(rows):
        for j in range(columns):
            for k in range(high):
                for m in range(wide):
                    result[:, i, j, k, m] = x[:, i * down + k * dilation[0], j * right + m * dilation[1]]
    return result


def convolution(x: Array, kernel: Array, layer: dict[str, Any], pads: Pads) -> Array:
    groups = layer.get("groups", 1)
    seen = windows(x, layer, pads)
    parts = zip(np.split(seen, groups, -1), np.split(kernel, groups, -1), strict=True)
    return np.concatenate([np.einsum("bijkmc,kmco->bijo", a, b) for a, b in parts], -1)


def depthwise(x: Array, kernel: Array, layer: dict[str, Any], pads: Pads) -> Array:
    y = np.einsum("bijkmc,kmcn->bijcn", windows(x, layer, pads), kernel)
    return y.reshape(*y.shape[:3], -1)


def transposed(x: Array, kernel: Array, layer: dict[str, Any]) -> Array:
    """Every input cell lays its kernel down, then a frame is cut off."""
    strides, dilation = two(layer.get("strides", 1)), two(layer.get("dilation", 1))
    spans = [(k - 1) * d + 1 for k, d in zip(kernel.shape[:2], dilation, strict=True)]
    sides = [(n - 1) * s + k for n, s, k in zip(x.shape[1:3], strides, spans, strict=True)]
    groups = layer.get("groups", 1)
    made = kernel.shape[2]
    full = np.zeros((len(x), *sides, made * groups), np.result_type(x, kernel))
    for group, (a, b) in enumerate(zip(np.split(x, groups, -1), np.split(kernel, groups, -1), strict=True)):
        for i, j in np.ndindex(*x.shape[1:3]):
            for k, m in np.ndindex(*kernel.shape[:2]):
                row, column = i * strides[0] + k * dilation[0], j * strides[1] + m * dilation[1]
                full[:, row, column, group * made : (group + 1) * made] += a[:, i, j] @ b[k, m].T
    for axis in (0, 1):
        full = frame(full, axis + 1, layer, x.shape[axis + 1], spans[axis], strides[axis], axis)
    return full


def frame(full: Array, axis: int, layer: dict[str, Any], n: int, span: int, stride: int, entry: int) -> Array:
    padding, extra = layer.get("padding", "same"), layer.get("output_padding")
    length = full.shape[axis]
    if padding == "valid":
        before, wanted = 0, (n - 1) * stride + (max(span, stride) if extra is None else span + extra)
    elif padding == "same":
        wanted = n * stride if extra is None else (n - 1) * stride + span % 2 + extra
        before = max(length - wanted, 0) // 2
    else:
        before, after = (padding, padding) if isinstance(padding, int) else padding[entry]
        wanted = length - before - after + (extra or 0)
    added = [(0, 0)] * full.ndim
    added[axis] = (0, max(before + wanted - length, 0))
    return np.pad(full, added).take(range(before, before + wanted), axis)


# What hypothesis draws.

small = st.integers(1, 3)
pairs = st.one_of(small, st.tuples(small, small))
frames = st.tuples(st.integers(0, 2), st.integers(0, 2))
paddings = st.one_of(st.sampled_from(["same", "same", "valid"]), st.integers(0, 2), st.tuples(frames, frames))
images = st.tuples(st.integers(5, 8), st.integers(5, 8))


def fits(layer: dict[str, Any], sides: tuple[int, ...]) -> bool:
    spans = [
        (k - 1) * d + 1 for k, d in zip(two(layer["kernel_size"]), two(layer.get("dilation", 1)), strict=True)
    ]
    return all(span <= side for span, side in zip(spans, sides, strict=False))


@given(
    sides=images,
    kernel=pairs,
    strides=pairs,
    dilation=pairs,
    padding=paddings,
    groups=st.integers(1, 2),
    bias=st.booleans(),
    convention=conventions,
    draw=draws,
)
@FEW
def test_conv2d(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    sides: Any,
    kernel: Any,
    strides: Any,
    dilation: Any,
    padding: Any,
    groups: int,
    bias: bool,
    convention: str,
    draw: int,
) -> None:
    layer = {
        "kind": "conv2d",
        "filters": 2 * groups,
        "kernel_size": kernel,
        "strides": strides,
        "dilation": dilation,
        "padding": padding,
        "groups": groups,
        "use_bias": bias,
    }
    if not fits(layer, sides):
        layer["dilation"] = 1
    case = Case((layer,), (*sides, 2 * groups), convention, draw=draw)
    pads = zero_pads(layer, sides, convention)
    check_layer(
        peers,
        vocabulary,
        case,
        lambda x, t: convolution(x, t["kernel"], layer, pads) + t.get("bias", 0),
    )


@given(
    steps=st.integers(5, 9),
    kernel=small,
    stride=small,
    dilation=st.integers(1, 2),
    padding=st.sampled_from(["same", "valid", 1, ((2, 1),)]),
    convention=conventions,
    draw=draws,
)
@FEW
def test_conv1d(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    steps: int,
    kernel: int,
    stride: int,
    dilation: int,
    padding: Any,
    convention: str,
    draw: int,
) -> None:
    sequence = {"kernel_size": kernel, "strides": stride, "dilation": dilation, "padding": padding}
    layer = {"kind": "conv1d", "filters": 4, "groups": 2, **sequence}
    case = Case((layer,), (steps, 2), convention, draw=draw)
    flat = flattened(layer)
    pads = zero_pads(flat, (1, steps), convention)
    pads[0] = (0, 0)
    check_layer(
        peers,
        vocabulary,
        case,
        lambda x, t: convolution(x[:, None], t["kernel"][None], flat, pads)[:, 0] + t["bias"],
    )


def flattened(layer: dict[str, Any]) -> dict[str, Any]:
    """A layer over sequences as one over images of height 1."""
    padding = layer["padding"]
    return {
        **layer,
        "kernel_size": (1, layer["kernel_size"]),
        "strides": (1, layer.get("strides", 1)),
        "dilation": (1, layer.get("dilation", 1)),
        "padding": ((0, 0), *padding) if isinstance(padding, tuple) else padding,
    }


@given(
    sides=images,
    kernel=pairs,
    strides=pairs,
    dilation=st.integers(1, 2),
    padding=paddings,
    multiplier=st.integers(1, 2),
    separable=st.booleans(),
    convention=conventions,
    draw=draws,
)
@FEW
def test_depthwise_and_separable(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    sides: Any,
    kernel: Any,
    strides: Any,
    dilation: int,
    padding: Any,
    multiplier: int,
    separable: bool,
    convention: str,
    draw: int,
) -> None:
    layer = {
        "kind": "depthwise_conv2d",
        "depth_multiplier": multiplier,
        "kernel_size": kernel,
        "strides": strides,
        "dilation": dilation,
        "padding": padding,
    }
    pads = zero_pads(layer, sides, convention)

    def numpy(x: Array, t: dict[str, Array]) -> Array:
        if not separable:
            return depthwise(x, t["kernel"], layer, pads) + t["bias"]
        return depthwise(x, t["depthwise_kernel"], layer, pads) @ t["pointwise_kernel"][0, 0] + t["bias"]

    whole = {**layer, "kind": "separable_conv2d", "filters": 3} if separable else layer
    check_layer(peers, vocabulary, Case((whole,), (*sides, 3), convention, draw=draw), numpy)


@given(
    sides=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    kernel=pairs,
    strides=pairs,
    dilation=st.integers(1, 2),
    padding=st.sampled_from(["same", "valid", 0]),
    extra=st.sampled_from([None, 0]),
    groups=st.integers(1, 2),
    draw=draws,
)
@FEW
def test_conv2d_transpose(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    sides: Any,
    kernel: Any,
    strides: Any,
    dilation: int,
    padding: Any,
    extra: int | None,
    groups: int,
    draw: int,
) -> None:
    layer = {
        "kind": "conv2d_transpose",
        "filters": 2 * groups,
        "kernel_size": kernel,
        "strides": strides,
        "dilation": dilation,
        "padding": padding,
        "output_padding": extra,
        "groups": groups,
    }
    # One cell, an even kernel and an output padding of 0: nothing is left.
    assume(not (padding == "same" and extra == 0 and 1 in sides))
    check_transposed(peers, vocabulary, layer, (*sides, 2 * groups), draw)


# PyTorch's own: padding below and above half the kernel, output padding, crops that are not symmetric.
@pytest.mark.parametrize(
    ("padding", "extra", "stride"),
    [(1, 1, 2), (2, 0, 3), (((2, 0), (0, 1)), None, 2), (((2, 0), (1, 1)), (1, 0), 2), ("same", 1, 3)],
)
def test_conv2d_transpose_cropped(
    peers: dict[str, Peer], vocabulary: Vocabulary, padding: Any, extra: Any, stride: int
) -> None:
    layer = {
        "kind": "conv2d_transpose",
        "filters": 2,
        "kernel_size": 3,
        "strides": stride,
        "padding": padding,
        "output_padding": extra,
    }
    numpy_layer = {**layer, "output_padding": extra if not isinstance(extra, tuple) else None}
    if isinstance(extra, tuple):
        # The frame's end moves out by the output padding.
        numpy_layer["padding"] = tuple((a, b - o) for (a, b), o in zip(padding, extra, strict=True))
    check_transposed(peers, vocabulary, layer, (3, 4, 2), 7, numpy_layer)


def check_transposed(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    layer: dict[str, Any],
    shape: tuple[int, ...],
    draw: int,
    numpy_layer: dict[str, Any] | None = None,
) -> None:
    case = Case((layer,), shape, draw=draw)
    case.model.tree()
    formula = numpy_layer or layer
    check_layer(peers, vocabulary, case, lambda x, t: transposed(x, t["kernel"], formula) + t["bias"])


@pytest.mark.parametrize(
    "layer", [{"padding": "same", "strides": 2}, {"padding": 1, "output_padding": 1, "strides": 2}]
)
def test_conv1d_transpose(peers: dict[str, Peer], vocabulary: Vocabulary, layer: dict[str, Any]) -> None:
    case = Case(({"kind": "conv1d_transpose", "filters": 3, "kernel_size": 3, **layer},), (5, 2))
    padding = layer["padding"]
    flat = {
        **layer,
        "strides": (1, 2),
        "padding": ((0, 0), (padding, padding - 1)) if padding == 1 else padding,
        "output_padding": None,
    }
    check_layer(
        peers,
        vocabulary,
        case,
        lambda x, t: transposed(x[:, None], t["kernel"][None], flat)[:, 0] + t["bias"],
    )


# Controls: what a wrong setting or a wrong formula does.


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"strides": 2}, {"strides": 2, "same_by": "kernel"}),
        ({"kernel_size": 2}, {"kernel_size": 2, "padding": ((1, 0), (1, 0))}),
        ({"padding": ((1, 0), (0, 1))}, {"padding": ((0, 1), (1, 0))}),
        ({"dilation": 2}, {"dilation": 1}),
    ],
)
def test_settings_matter(peers: dict[str, Peer], one: dict[str, Any], other: dict[str, Any]) -> None:
    # By stride, the padding of an even side with a stride of 2 is all at the end.
    cases = [
        Case(({"kind": "conv2d", "filters": 4, "same_by": "stride", **x},), (6, 6, 4)) for x in (one, other)
    ]
    assert apart(peers, *cases) > 1e-6


def test_wrong_formulas_are_seen(peers: dict[str, Peer]) -> None:
    layer = {"kind": "depthwise_conv2d", "depth_multiplier": 2, "kernel_size": 3, "strides": 2}
    case = Case((layer,), (6, 6, 3))
    pads = zero_pads(layer, (6, 6), "keras")

    def swapped(x: Array, t: dict[str, Array]) -> Array:
        y = depthwise(x, t["kernel"], layer, pads)
        return y.reshape(*y.shape[:3], 3, 2).swapaxes(-1, -2).reshape(y.shape) + t["bias"]

    with pytest.raises(AssertionError, match="numpy y"):
        check_layer(peers, Vocabulary(), case, swapped)
    transpose = {"kind": "conv2d_transpose", "filters": 3, "kernel_size": 4, "strides": 3}
    shifted = {**transpose, "padding": ((1, 0), (1, 0))}
    with pytest.raises(AssertionError, match="numpy y"):
        check_layer(
            peers,
            Vocabulary(),
            Case((transpose,), (3, 3, 2)),
            lambda x, t: transposed(x, t["kernel"], shifted) + t["bias"],
        )
