"""Normalisations: TensorFlow, PyTorch, NumPy and the frameworks' own layers agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.common.base.errors import SpecError
from parity_tests.helpers.images import (
    AFFINE,
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
    torch_module,
)
from parity_tests.helpers.layers import Case, both, check_layer, deviations
from parity_tests.peers import Arrays, Peer
from parity_tests.tables.vocabulary import LIMIT, Vocabulary

pytestmark = pytest.mark.usefixtures("peers")
EPSILON = {"keras": 1e-3, "torch": 1e-5}
# Two numbers that are standardised become +-1 whatever they are: their gradient cancels, its rounding stays.
many = st.integers(4, 7)
shapes = st.tuples(st.lists(st.integers(1, 4), max_size=2), many).map(lambda s: (*s[0], s[1]))
flags = st.booleans()
# In the order of a Keras layer's weights.
STATISTICS = ("gamma", "beta", "moving_mean", "moving_variance")
MOVING = {"running_mean": ("moving_mean", (0,)), "running_var": ("moving_variance", (0,))}


def standardised(x: Array, axes: Any, epsilon: float) -> Array:
    mean = x.mean(axes, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + epsilon)


def affine(y: Array, t: dict[str, Array]) -> Array:
    return y * t.get("gamma", 1) + t.get("beta", 0)


# Batch norm.


@given(
    shape=shapes, training=flags, scale=flags, center=flags, frozen=flags, convention=conventions, draw=draws
)
@FEW
def test_batch_norm(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    shape: Any,
    training: bool,
    scale: bool,
    center: bool,
    frozen: bool,
    convention: str,
    draw: int,
) -> None:
    layer = {"kind": "batch_norm", "scale": scale, "center": center, "frozen": frozen}
    case = Case((layer,), shape, convention, training=training, draw=draw, batch=6)

    def numpy(x: Array, t: dict[str, Array]) -> Array:
        if training and not (frozen and convention == "keras"):
            return affine(standardised(x, tuple(range(x.ndim - 1)), EPSILON[convention]), t)
        return affine((x - t["moving_mean"]) / np.sqrt(t["moving_variance"] + EPSILON[convention]), t)

    check_layer(peers, vocabulary, case, numpy)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("convention", ["keras", "torch"])
def test_moving_statistics(
    peers: dict[str, Peer], vocabulary: Vocabulary, convention: str, frozen: bool
) -> None:
    """Rows 1, 3 and 6, by their formulas, after three passes."""
    case = Case(({"kind": "batch_norm", "frozen": frozen},), (3, 2), convention)
    decay = 0.99 if convention == "keras" else 0.9
    mean, variance = (case.arrays()[f"buffers/batch_norm/moving_{name}"] for name in ("mean", "variance"))
    for draw in range(3):
        x = Case(case.layers, (3, 2), convention, draw=draw).arrays()["x"].reshape(9, 2)
        if not (frozen and convention == "keras"):
            mean = decay * mean + (1 - decay) * x.mean(0)
            variance = decay * variance + (1 - decay) * x.var(0, ddof=int(convention == "torch"))
    for framework in ("tensorflow", "torch"):
        arrays = case.arrays()
        for draw in range(3):
            arrays["x"] = Case(case.layers, (3, 2), convention, draw=draw).arrays()["x"]
            results = peers[framework]("layers:forward_backward", case.facts, arrays)
            arrays |= {name: value for name, value in results.items() if name.startswith("buffers/")}
        assert ("dparameters/batch_norm/gamma" in results) is not frozen
        found = deviations(
            {name: arrays[f"buffers/batch_norm/moving_{name}"] for name in ("mean", "variance")},
            {"mean": mean, "variance": variance},
        )
        vocabulary.saw("layer", "batch_norm", max(found.values()), "NumPy")
        assert max(found.values()) < LIMIT, found


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_stock_batch_norm(
    peers: dict[str, Peer], vocabulary: Vocabulary, training: bool, frozen: bool
) -> None:
    """Output, gradients and moving statistics of three passes, each framework's own in its defaults."""
    for convention, framework in (("keras", "torch"), ("torch", "tensorflow")):
        mine: Arrays = {}
        theirs: Arrays = {}
        for draw in range(3):
            layers = ({"kind": "batch_norm", "frozen": frozen},)
            case = Case(layers, (4, 3), convention, training=training, draw=draw)
            arrays = case.arrays()
            stay = {f"buffers/batch_norm/{name}": mine[name] for name in mine if name.startswith("moving_")}
            mine = ours(peers, framework, case, {**arrays, **stay})
            given = {**short(arrays), **{n: v for n, v in theirs.items() if n.startswith("moving_")}}
            if convention == "keras":
                theirs = keras_layer(
                    peers, case, "BatchNormalization", STATISTICS, training, not frozen, given=given
                )
            else:
                layout = {**AFFINE, **MOVING}
                theirs = torch_module(
                    peers, case, "BatchNorm1d", layout, trainable=not frozen, given=given, num_features=3
                )
        against(
            vocabulary,
            case,
            mine,
            theirs,
            "keras.layers.BatchNormalization" if convention == "keras" else "nn.BatchNorm1d",
        )


def test_batch_norm_of_numbers_far_from_zero(peers: dict[str, Peer]) -> None:
    """E[x^2] - E[x]^2 would lose six of sixteen digits here."""
    case = Case(({"kind": "batch_norm"},), (4, 2), "torch")
    check_far_from_zero(peers, case, lambda x: standardised(x, (0, 1), 1e-5))


def check_far_from_zero(peers: dict[str, Peer], case: Case, numpy: Any) -> None:
    arrays = case.arrays()
    arrays["x"] = x = np.round(arrays["x"], 3) + 1000.0
    expected = affine(
        numpy(x.astype(np.longdouble)), {n: a for n, a in short(arrays).items() if n in ("gamma", "beta")}
    )
    for framework, results in zip(
        ("tensorflow", "torch"), both(peers, "layers:forward_backward", case.facts, arrays), strict=True
    ):
        # 1000 itself is known to 1e-13 only.
        assert np.abs(results["y"] - expected).max() < 3e-12, framework


# Norms within a sample.


@given(shape=shapes, axes=st.integers(1, 3), scale=flags, center=flags, convention=conventions, draw=draws)
@FEW
def test_layer_norm(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    shape: Any,
    axes: int,
    scale: bool,
    center: bool,
    convention: str,
    draw: int,
) -> None:
    axes = min(axes, len(shape))
    layer = {"kind": "layer_norm", "axes": axes, "scale": scale, "center": center}
    case = Case((layer,), shape, convention, draw=draw)
    last = tuple(range(-axes, 0))
    check_layer(peers, vocabulary, case, lambda x, t: affine(standardised(x, last, EPSILON[convention]), t))


@given(shape=shapes, axes=st.integers(1, 3), scale=flags, convention=conventions, draw=draws)
@FEW
def test_rms_norm(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    shape: Any,
    axes: int,
    scale: bool,
    convention: str,
    draw: int,
) -> None:
    axes = min(axes, len(shape))
    case = Case(({"kind": "rms_norm", "axes": axes, "scale": scale},), shape, convention, draw=draw)
    last = tuple(range(-axes, 0))
    epsilon = 1e-6 if convention == "keras" else np.finfo(np.float64).eps

    def numpy(x: Array, t: dict[str, Array]) -> Array:
        return affine(x / np.sqrt((x * x).mean(last, keepdims=True) + epsilon), t)

    check_layer(peers, vocabulary, case, numpy)


@given(
    sides=st.lists(st.integers(1, 4), max_size=2).map(tuple),
    groups=st.integers(1, 3),
    each=many,
    scale=flags,
    center=flags,
    convention=conventions,
    draw=draws,
)
@FEW
def test_group_norm(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    sides: Any,
    groups: int,
    each: int,
    scale: bool,
    center: bool,
    convention: str,
    draw: int,
) -> None:
    layer = {"kind": "group_norm", "groups": groups, "scale": scale, "center": center}
    case = Case((layer,), (*sides, groups * each), convention, draw=draw)

    def numpy(x: Array, t: dict[str, Array]) -> Array:
        parts = np.split(x, groups, -1)
        axes = tuple(range(1, x.ndim))
        y = np.concatenate([standardised(part, axes, EPSILON[convention]) for part in parts], -1)
        return affine(y, t)

    check_layer(peers, vocabulary, case, numpy)


@given(
    sides=st.lists(many, min_size=1, max_size=2).map(tuple),
    affine_=st.sampled_from([None, True, False]),
    convention=conventions,
    draw=draws,
)
@FEW
def test_instance_norm(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    sides: Any,
    affine_: bool | None,
    convention: str,
    draw: int,
) -> None:
    case = Case(({"kind": "instance_norm", "affine": affine_},), (*sides, 3), convention, draw=draw)
    axes = tuple(range(1, len(sides) + 1))
    check_layer(peers, vocabulary, case, lambda x, t: affine(standardised(x, axes, EPSILON[convention]), t))


KERAS = [
    ({"kind": "layer_norm"}, "LayerNormalization", ("gamma", "beta"), {}),
    ({"kind": "layer_norm", "axes": 2}, "LayerNormalization", ("gamma", "beta"), {"axis": [-2, -1]}),
    ({"kind": "rms_norm"}, "RMSNormalization", ("gamma",), {}),
    ({"kind": "group_norm", "groups": 2}, "GroupNormalization", ("gamma", "beta"), {"groups": 2}),
    ({"kind": "instance_norm"}, "GroupNormalization", ("gamma", "beta"), {"groups": -1}),
    ({"kind": "batch_norm", "scale": False}, "BatchNormalization", STATISTICS[1:], {"scale": False}),
    (
        {"kind": "batch_norm", "center": False},
        "BatchNormalization",
        (STATISTICS[0], *STATISTICS[2:]),
        {"center": False},
    ),
]


@pytest.mark.parametrize(("layer", "stock", "tensors", "arguments"), KERAS)
def test_stock_keras(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    layer: dict[str, Any],
    stock: str,
    tensors: tuple[str, ...],
    arguments: dict[str, Any],
) -> None:
    training = {"training": True} if layer["kind"] == "batch_norm" else {}
    case = Case((layer,), (4, 3, 6), "keras")
    against_keras(peers, vocabulary, case, stock, *tensors, **training, **arguments)


TORCH: list[tuple[dict[str, Any], str, dict[str, Any], bool, dict[str, Any]]] = [
    ({"kind": "layer_norm"}, "LayerNorm", AFFINE, False, {"normalized_shape": 6}),
    (
        {"kind": "layer_norm", "axes": 2},
        "LayerNorm",
        {"weight": ("gamma", (0, 1)), "bias": ("beta", (0, 1))},
        False,
        {"normalized_shape": (3, 6)},
    ),
    ({"kind": "rms_norm"}, "RMSNorm", {"weight": ("gamma", (0,))}, False, {"normalized_shape": 6}),
    ({"kind": "group_norm", "groups": 2}, "GroupNorm", AFFINE, True, {"num_groups": 2, "num_channels": 6}),
    ({"kind": "instance_norm"}, "InstanceNorm2d", {}, True, {"num_features": 6}),
    (
        {"kind": "instance_norm", "affine": True},
        "InstanceNorm2d",
        AFFINE,
        True,
        {"num_features": 6, "affine": True},
    ),
    ({"kind": "batch_norm"}, "BatchNorm2d", {**AFFINE, **MOVING}, True, {"num_features": 6}),
]


@pytest.mark.parametrize(("layer", "stock", "layout", "channels_first", "arguments"), TORCH)
def test_stock_torch(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    layer: dict[str, Any],
    stock: str,
    layout: dict[str, Any],
    channels_first: bool,
    arguments: dict[str, Any],
) -> None:
    case = Case((layer,), (4, 3, 6), "torch")
    against_torch(peers, vocabulary, case, stock, layout, channels_first=channels_first, **arguments)


@pytest.mark.parametrize(
    ("layer", "formula"),
    [
        ({"kind": "layer_norm"}, lambda x: standardised(x, -1, 1e-5)),
        ({"kind": "group_norm", "groups": 1}, lambda x: standardised(x, (1, 2), 1e-5)),
        ({"kind": "instance_norm"}, lambda x: standardised(x, 1, 1e-5)),
    ],
)
def test_numbers_far_from_zero(peers: dict[str, Peer], layer: dict[str, Any], formula: Any) -> None:
    check_far_from_zero(peers, Case((layer,), (4, 5), "torch"), formula)


# Controls.


@pytest.mark.parametrize(
    "layer",
    [
        {"kind": "batch_norm"},
        {"kind": "batch_norm", "frozen": True},
        {"kind": "layer_norm"},
        {"kind": "group_norm", "groups": 2},
        {"kind": "rms_norm"},
    ],
)
def test_the_conventions_differ(peers: dict[str, Peer], layer: dict[str, Any]) -> None:
    # Small numbers, so that RMSNorm's 1e-6 counts.
    one, other = (Case((layer,), (4, 4), convention) for convention in ("keras", "torch"))
    arrays = {name: 0.1 * value for name, value in one.arrays().items() if name != "sample_ids"}
    arrays["sample_ids"] = one.arrays()["sample_ids"]
    found = deviations(ours(peers, "tensorflow", one, arrays), ours(peers, "torch", other, arrays))
    assert max(found.values()) > 1e-6


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"decay": 0.99}, {"decay": 0.9}),
        ({"running_variance": "biased"}, {"running_variance": "unbiased"}),
        ({"frozen": True, "frozen_statistics": "kept"}, {"frozen": True, "frozen_statistics": "updated"}),
        ({"frozen": True, "frozen_statistics": "updated"}, {"frozen": False}),
    ],
)
def test_settings_of_batch_norm_matter(
    peers: dict[str, Peer], one: dict[str, Any], other: dict[str, Any]
) -> None:
    case, changed = (Case(({"kind": "batch_norm", **x},), (4, 4)) for x in (one, other))
    assert apart(peers, case, changed) > 1e-6


def test_wrong_formulas_are_seen(peers: dict[str, Peer]) -> None:
    case = Case(({"kind": "group_norm", "groups": 2},), (3, 6), "keras")

    def interleaved(x: Array, t: dict[str, Array]) -> Array:
        y = np.empty_like(x, shape=x.shape)
        for group in (0, 1):
            y[..., group::2] = standardised(x[..., group::2], (1, 2), 1e-3)
        return affine(y, t)

    with pytest.raises(AssertionError, match="numpy y"):
        check_layer(peers, Vocabulary(), case, interleaved)
    case = Case(({"kind": "layer_norm"},), (6,), "keras")
    with pytest.raises(AssertionError, match="numpy y"):
        check_layer(
            peers, Vocabulary(), case, lambda x, t: affine(standardised(x, -1, 1e-3) * (5 / 6) ** 0.5, t)
        )


@pytest.mark.parametrize(
    "layer",
    [
        {"kind": "batch_norm"},
        {"kind": "batch_norm", "frozen": True},
        {"kind": "layer_norm"},
        {"kind": "rms_norm"},
        {"kind": "group_norm", "groups": 2},
        {"kind": "instance_norm"},
    ],
)
def test_no_samples(peers: dict[str, Peer], layer: dict[str, Any]) -> None:
    check_empty(peers, layer, (3, 4))


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        ({"kind": "layer_norm", "axes": 4}, ("axes 4", "(6, 6, 4)")),
        ({"kind": "rms_norm", "axes": 4}, ("axes 4", "(6, 6, 4)")),
        ({"kind": "rms_norm", "epsilon": "small"}, ("epsilon", "'machine'", "'small'")),
        ({"kind": "rms_norm", "epsilon": 0}, ("epsilon", "'machine'", "0")),
        ({"kind": "group_norm", "groups": 3}, ("groups 3", "(6, 6, 4)")),
        ({"kind": "batch_norm", "frozen_statistics": "old"}, ("frozen_statistics", "kept, updated", "'old'")),
    ],
)
def test_what_does_not_fit_is_refused(layer: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(SpecError) as error:
        Case((layer,), (6, 6, 4)).model.tree()
    assert all(word in str(error.value) for word in words), error.value


def test_instance_norm_needs_somewhere_to_average() -> None:
    with pytest.raises(SpecError, match="axes before the channels"):
        Case(({"kind": "instance_norm"},), (4,)).model.tree()
