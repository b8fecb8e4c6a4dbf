"""Interpolation: TensorFlow, PyTorch, NumPy and the frameworks' own layers agree."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.common.base.errors import SpecError
from parity_tests.helpers.images import (
    FEW,
    Array,
    against,
    against_keras,
    against_torch,
    apart,
    check_empty,
    conventions,
    draws,
    keras_layer,
    ours,
    short,
)
from parity_tests.helpers.layers import Case, check_layer
from parity_tests.peers import Peer
from parity_tests.tables.vocabulary import Vocabulary

pytestmark = pytest.mark.usefixtures("peers")


def keys(t: float, a: float) -> float:
    """Keys's kernel as in the paper: equation 15 has a = -1/2."""
    t = abs(t)
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0.0


def taps(i: int, before: int, after: int, how: str, align: bool, convention: str) -> dict[int, float]:
    """The input cells of output cell i, with their weights."""
    if how == "nearest":
        shift = 0.5 if convention == "keras" else 0.0
        return {math.floor((i + shift) * before / after): 1.0}
    if align:
        place = i * (before - 1) / (after - 1) if after > 1 else 0.0
    else:
        place = (i + 0.5) * before / after - 0.5
    cells: dict[int, float] = {}
    reach = [-1, 0, 1, 2] if how == "bicubic" else [0, 1]
    for cell in (math.floor(place) + offset for offset in reach):
        inside = min(max(cell, 0), before - 1)
        if how == "bilinear":
            weight = max(1 - abs(place - cell), 0)
        elif convention == "torch":
            weight = keys(place - cell, -0.75)
        else:
            weight = keys(place - cell, -0.5) if inside == cell else 0.0
        cells[inside] = cells.get(inside, 0.0) + weight
    whole = sum(cells.values())
    return {cell: weight / whole for cell, weight in cells.items()}


def resized(x: Array, sides: tuple[int, int], how: str, align: bool, convention: str) -> Array:
    for axis, after in enumerate(sides, 1):
        rows = [
            sum(
                weight * x.take(cell, axis)
                for cell, weight in taps(i, x.shape[axis], after, how, align, convention).items()
            )
            for i in range(after)
        ]
        x = np.stack(rows, axis)
    return x


hows = st.sampled_from(["nearest", "bilinear", "bicubic"])


@given(
    before=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    after=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    how=hows,
    align=st.booleans(),
    convention=conventions,
    draw=draws,
)
@FEW
def test_resize(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    before: Any,
    after: Any,
    how: str,
    align: bool,
    convention: str,
    draw: int,
) -> None:
    align = align and how != "nearest"
    layer = {
        "kind": "resize",
        "height": after[0],
        "width": after[1],
        "interpolation": how,
        "align_corners": align,
    }
    case = Case((layer,), (*before, 2), convention, draw=draw)
    check_layer(peers, vocabulary, case, lambda x, t: resized(x, after, how, align, convention))


@given(
    size=st.one_of(st.integers(1, 3), st.tuples(st.integers(1, 3), st.integers(1, 3))),
    how=hows,
    convention=conventions,
    draw=draws,
)
@FEW
def test_up_sampling(
    peers: dict[str, Peer], vocabulary: Vocabulary, size: Any, how: str, convention: str, draw: int
) -> None:
    factors = (size, size) if isinstance(size, int) else size
    case = Case(
        ({"kind": "up_sampling2d", "size": size, "interpolation": how},), (3, 4, 2), convention, draw=draw
    )
    sides = (3 * factors[0], 4 * factors[1])
    check_layer(peers, vocabulary, case, lambda x, t: resized(x, sides, how, False, convention))


def test_stock_keras_nearest(peers: dict[str, Peer], vocabulary: Vocabulary) -> None:
    case = Case(({"kind": "up_sampling2d", "size": (2, 3)},), (3, 4, 2), "keras")
    against_keras(peers, vocabulary, case, "UpSampling2D", size=(2, 3))


@pytest.mark.parametrize("how", ["bilinear", "bicubic"])
def test_stock_keras_interpolated(peers: dict[str, Peer], how: str) -> None:
    """Stock Keras interpolates in float32, whatever its dtype: so the limit here, and no entry in the ledger."""
    case = Case(({"kind": "up_sampling2d", "interpolation": how},), (5, 4, 2), "keras")
    theirs = keras_layer(peers, case, "UpSampling2D", interpolation=how)
    against(Vocabulary(), case, ours(peers, "torch", case), theirs, "keras.layers.UpSampling2D", limit=1e-6)
    other = Case(
        ({"kind": "up_sampling2d", "interpolation": how, "align_corners": True},), (5, 4, 2), "keras"
    )
    with pytest.raises(AssertionError, match="UpSampling2D"):
        against(
            Vocabulary(), other, ours(peers, "torch", other), theirs, "keras.layers.UpSampling2D", limit=1e-6
        )


@pytest.mark.parametrize("how", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("after", [(6, 8), (7, 3)])
def test_stock_torch(
    peers: dict[str, Peer], vocabulary: Vocabulary, how: str, align: bool, after: tuple[int, int]
) -> None:
    arguments = {} if how == "nearest" else {"align_corners": align}
    layer = {"kind": "resize", "height": after[0], "width": after[1], "interpolation": how, **arguments}
    case = Case((layer,), (3, 4, 2), "torch")
    against_torch(peers, vocabulary, case, "Upsample", size=after, mode=how, **arguments)


def test_the_conventions_differ(peers: dict[str, Peer]) -> None:
    for how, sides in (("nearest", {"height": 3, "width": 5}), ("bicubic", {"height": 6, "width": 8})):
        layers = ({"kind": "resize", "interpolation": how, **sides},)
        assert apart(peers, Case(layers, (4, 4, 2), "keras"), Case(layers, (4, 4, 2), "torch")) > 1e-6
    one, other = (
        Case(({"kind": "up_sampling2d", "interpolation": "bilinear", "align_corners": x},), (4, 4, 2))
        for x in (False, True)
    )
    assert apart(peers, one, other) > 1e-6


def test_a_wrong_formula_is_seen(peers: dict[str, Peer]) -> None:
    case = Case(({"kind": "up_sampling2d", "interpolation": "bicubic"},), (4, 4, 2), "keras")
    with pytest.raises(AssertionError, match="numpy y"):
        check_layer(peers, Vocabulary(), case, lambda x, t: resized(x, (8, 8), "bicubic", False, "torch"))


@pytest.mark.parametrize("how", ["nearest", "bilinear", "bicubic"])
def test_no_samples(peers: dict[str, Peer], how: str) -> None:
    check_empty(peers, {"kind": "up_sampling2d", "interpolation": how}, (3, 4, 2))
    check_empty(peers, {"kind": "resize", "height": 2, "width": 7, "interpolation": how}, (3, 4, 2))


def test_what_does_not_fit_is_refused() -> None:
    for layer, words in (
        ({"kind": "up_sampling2d", "align_corners": True}, ("align_corners", "'bilinear'")),
        ({"kind": "resize", "height": 2, "width": 0}, ("width", "0")),
    ):
        with pytest.raises(SpecError) as error:
            Case((layer,), (6, 6, 4)).model.tree()
        assert all(word in str(error.value) for word in words), error.value
    with pytest.raises(SpecError, match="HWC"):
        Case(({"kind": "up_sampling2d"},), (6, 6)).model.tree()


def test_short_names() -> None:
    """The helper that compares with stock layers must not let two tensors fall together."""
    arrays = {"dparameters/a/kernel": np.ones(1), "buffers/a/moving_mean": np.zeros(1), "y": np.ones(2)}
    assert set(short(arrays)) == {"dkernel", "moving_mean", "y"}
