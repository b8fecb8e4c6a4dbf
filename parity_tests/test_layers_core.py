"""Dense layers, activations, changes of shape: TensorFlow, PyTorch, NumPy and the frameworks' own layers agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from parity.common.base import rng
from parity.common.base.errors import SpecError
from parity.common.spec.layers import PReLU
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
)
from parity_tests.helpers.layers import Case, both, check_layer, deviations
from parity_tests.peers import Peer
from parity_tests.tables.vocabulary import LIMIT, Vocabulary

pytestmark = pytest.mark.usefixtures("peers")
shapes = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)


@given(shape=shapes, units=st.integers(1, 6), bias=st.booleans(), convention=conventions, draw=draws)
@FEW
def test_dense(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    shape: Any,
    units: int,
    bias: bool,
    convention: str,
    draw: int,
) -> None:
    case = Case(({"kind": "dense", "units": units, "use_bias": bias},), shape, convention, draw=draw)
    check_layer(peers, vocabulary, case, lambda x, t: x @ t["kernel"] + t.get("bias", 0))


def test_stock_dense(peers: dict[str, Peer], vocabulary: Vocabulary) -> None:
    layers = ({"kind": "dense", "units": 3},)
    against_keras(peers, vocabulary, Case(layers, (4, 5), "keras"), "Dense", "kernel", "bias", units=3)
    layout = {"weight": ("kernel", (1, 0)), "bias": ("bias", (0,))}
    features = {"in_features": 5, "out_features": 3}
    case = Case(layers, (4, 5), "torch")
    against_torch(peers, vocabulary, case, "Linear", layout, channels_first=False, **features)


def test_a_transposed_kernel_is_seen(peers: dict[str, Peer]) -> None:
    case = Case(({"kind": "dense", "units": 3},), (3,))
    with pytest.raises(AssertionError, match="numpy y"):
        check_layer(peers, Vocabulary(), case, lambda x, t: x @ t["kernel"].T + t["bias"])


@given(
    key=st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    step=st.integers(0, 2**32 - 1),
    ids=st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=5),
    count=st.integers(1, 19),
)
@FEW
def test_random_words_are_the_same_bits(
    peers: dict[str, Peer], key: tuple[int, int], step: int, ids: list[int], count: int
) -> None:
    facts = {"key": key, "step": step, "count": count}
    results = both(peers, "layers:words", facts, {"sample_ids": np.array(ids)})
    expected = rng.sample_words(key, step, np.array(ids), count).astype(np.int64)
    for result in results:
        assert (result["words"] == expected).all()


# Activations, in complex-safe NumPy.


def positive(x: Array) -> Array:
    return np.where(x.real > 0, x, 0)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def log_softmax(x: Array) -> Array:
    shifted = x - x.real.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def relu6(x: Array) -> Array:
    return np.where(x.real > 6, 6, positive(x))


FUNCTIONS: dict[str, Any] = {
    "relu": positive,
    "leaky_relu": lambda x, slope: np.where(x.real > 0, x, slope * x),
    "elu": lambda x: np.where(x.real > 0, x, np.exp(x) - 1),
    "gelu": lambda x: x * (1 + special.erf(x / 2**0.5)) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2,
    "quick_gelu": lambda x: x * sigmoid(1.702 * x),
    "silu": lambda x: x * sigmoid(x),
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "softmax": lambda x: np.exp(log_softmax(x)),
    "log_softmax": log_softmax,
    "hard_swish": lambda x: x * relu6(x + 3) / 6,
    "relu6": relu6,
    "softplus": lambda x: np.where(x.real > 0, x + np.log(1 + np.exp(-x)), np.log(1 + np.exp(x))),
}


def activation(function: str, convention: str, shape: Any, draw: int = 0) -> Case:
    return Case(({"kind": "activation", "function": function},), shape, convention, draw=draw)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("convention", ["keras", "torch"])
def test_activation(peers: dict[str, Peer], vocabulary: Vocabulary, function: str, convention: str) -> None:
    slope = (0.3 if convention == "keras" else 0.01,) if function == "leaky_relu" else ()
    case = activation(function, convention, (3, 40))
    check_layer(peers, vocabulary, case, lambda x, t: FUNCTIONS[function](x, *slope))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_activation_of_large_and_small_numbers(peers: dict[str, Peer], function: str) -> None:
    """Up to 1000, and close to zero: no overflow, and no shortcut that costs digits."""
    case = activation(function, "keras", (12,))
    large = np.array([-1000, -40, -21, -7, -3.5, -1e-9, 1e-9, 2.5, 5, 7, 21, 1000.0])
    arrays = {**case.arrays(), "x": np.stack([large, large[::-1], large + 0.125])}
    a, b = both(peers, "layers:forward_backward", case.facts, arrays)
    for name in ("y", "dx"):
        # Number by number, so that 1000 does not hide what happens to 21.
        assert np.isfinite(a[name]).all()
        scale = np.maximum(1, np.maximum(np.abs(a[name]), np.abs(b[name])))
        assert (np.abs(a[name] - b[name]) / scale).max() < LIMIT, name


@pytest.mark.parametrize("wrong", ["relu", "gelu_tanh", "silu"])
def test_another_function_is_seen(peers: dict[str, Peer], wrong: str) -> None:
    with pytest.raises(AssertionError, match="numpy y"):
        check_layer(peers, Vocabulary(), activation("gelu", "keras", (9,)), lambda x, t: FUNCTIONS[wrong](x))


def test_the_conventions_have_their_own_slope(peers: dict[str, Peer]) -> None:
    cases = [activation("leaky_relu", convention, (9,)) for convention in ("keras", "torch")]
    assert apart(peers, *cases) > 1e-6


# Of Keras's functions those that do not pass constants through float32; leaky_relu is below.
@pytest.mark.parametrize(
    ("function", "stock"),
    [
        (f, f)
        for f in ("relu", "elu", "silu", "tanh", "sigmoid", "softmax", "log_softmax", "relu6", "softplus")
    ]
    + [("hard_swish", "hard_silu")],
)
def test_stock_keras_activation(
    peers: dict[str, Peer], vocabulary: Vocabulary, function: str, stock: str
) -> None:
    against_keras(peers, vocabulary, activation(function, "keras", (3, 9)), "Activation", activation=stock)


def test_stock_keras_leaky_relu(peers: dict[str, Peer], vocabulary: Vocabulary) -> None:
    """Stock Keras's slope is .3 rounded to float32: equal to ours with that slope, and 1e-8 from .3 itself."""
    layer = {"kind": "activation", "function": "leaky_relu"}
    default = Case((layer,), (3, 9), "keras")
    rounded = Case(({**layer, "negative_slope": float(np.float32(0.3))},), (3, 9), "keras")
    against_keras(peers, vocabulary, rounded, "LeakyReLU")
    theirs = keras_layer(peers, default, "LeakyReLU")
    far = deviations(ours(peers, "torch", default), theirs)
    assert 1e-10 < max(far.values()) < 2e-8


@pytest.mark.parametrize(
    ("function", "stock", "arguments"),
    [
        ("relu", "ReLU", {}),
        ("leaky_relu", "LeakyReLU", {}),
        ("elu", "ELU", {}),
        ("gelu", "GELU", {}),
        ("gelu_tanh", "GELU", {"approximate": "tanh"}),
        ("silu", "SiLU", {}),
        ("tanh", "Tanh", {}),
        ("sigmoid", "Sigmoid", {}),
        ("softmax", "Softmax", {"dim": -1}),
        ("log_softmax", "LogSoftmax", {"dim": -1}),
        ("hard_swish", "Hardswish", {}),
        ("relu6", "ReLU6", {}),
        ("softplus", "Softplus", {}),
    ],
)
def test_stock_torch_activation(
    peers: dict[str, Peer], vocabulary: Vocabulary, function: str, stock: str, arguments: dict[str, Any]
) -> None:
    case = activation(function, "torch", (3, 9))
    against_torch(peers, vocabulary, case, stock, channels_first=False, **arguments)


@given(
    shape=shapes,
    slope_per=st.sampled_from(["element", "channel", "layer", None]),
    convention=conventions,
    draw=draws,
)
@FEW
def test_prelu(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    shape: Any,
    slope_per: str | None,
    convention: str,
    draw: int,
) -> None:
    case = Case(({"kind": "prelu", "slope_per": slope_per},), shape, convention, draw=draw)
    check_layer(peers, vocabulary, case, lambda x, t: np.where(x.real > 0, x, t["alpha"] * x))


def test_stock_prelu(peers: dict[str, Peer], vocabulary: Vocabulary) -> None:
    layers = ({"kind": "prelu"},)
    against_keras(peers, vocabulary, Case(layers, (3, 4, 2), "keras"), "PReLU", "alpha")
    weight = {"weight": ("alpha", (0,))}
    against_torch(peers, vocabulary, Case(layers, (3, 4, 2), "torch"), "PReLU", weight)
    each = Case(({"kind": "prelu", "slope_per": "channel"},), (3, 4, 2), "torch")
    against_torch(peers, vocabulary, each, "PReLU", weight, num_parameters=2)
    # shared_axes leaves the channels: the stock tensor is (1, 1, channels).
    keras = PReLU().resolve("keras").parameters((3, 4, 2))[0]
    torch = PReLU().resolve("torch").parameters((3, 4, 2))[0]
    assert (keras.shape, keras.initializer, torch.shape, torch.initializer) == (
        (3, 4, 2),
        "zeros",
        (1,),
        "constant_0.25",
    )


@given(shape=shapes, order=st.sampled_from(["hwc", "chw"]), draw=draws)
@FEW
def test_flatten(peers: dict[str, Peer], vocabulary: Vocabulary, shape: Any, order: str, draw: int) -> None:
    def numpy(x: Array, t: dict[str, Array]) -> Array:
        x = np.moveaxis(x, -1, 1) if order == "chw" else x
        return x.reshape(len(x), -1)

    check_layer(peers, vocabulary, Case(({"kind": "flatten", "order": order},), shape, draw=draw), numpy)


def test_the_conventions_flatten_differently(peers: dict[str, Peer]) -> None:
    layers = ({"kind": "flatten"},)
    assert apart(peers, Case(layers, (3, 2, 2), "keras"), Case(layers, (3, 2, 2), "torch")) > 1e-6


@given(draw=draws, dims=st.permutations([1, 2, 3]), start=st.integers(0, 3), length=st.integers(1, 2))
@FEW
def test_changes_of_shape(
    peers: dict[str, Peer], vocabulary: Vocabulary, draw: int, dims: list[int], start: int, length: int
) -> None:
    shape = (2, 3, 5)
    cases: list[tuple[dict[str, Any], Any]] = [
        ({"kind": "permute", "dims": dims}, lambda x, t: x.transpose(0, *dims)),
        ({"kind": "reshape", "shape": (5, -1, 2)}, lambda x, t: x.reshape(len(x), 5, 3, 2)),
        (
            {"kind": "slice", "start": start, "stop": start + length},
            lambda x, t: x[..., start : start + length],
        ),
    ]
    for layer, numpy in cases:
        check_layer(peers, vocabulary, Case((layer,), shape, draw=draw), numpy)


def test_stock_changes_of_shape(peers: dict[str, Peer], vocabulary: Vocabulary) -> None:
    case = Case(({"kind": "permute", "dims": (3, 1, 2)},), (2, 3, 4))
    against_keras(peers, vocabulary, case, "Permute", dims=(3, 1, 2))
    case = Case(({"kind": "reshape", "shape": (6, -1)},), (2, 3, 4))
    against_keras(peers, vocabulary, case, "Reshape", target_shape=(6, -1))
    case = Case(({"kind": "flatten"},), (2, 3, 4), "torch")
    # The stock module flattens NCHW; its two-dimensional output has no channels to move back.
    theirs = peers["torch"](
        "image:stock",
        {
            "layer": "Flatten",
            "arguments": {},
            "tensors": {},
            "training": True,
            "trainable": True,
            "channels_first": True,
        },
        case.arrays() | {"cotangent": case.arrays()["cotangent"]},
    )
    against(vocabulary, case, ours(peers, "tensorflow", case), theirs, "nn.Flatten")


@given(shape=shapes, l1=st.sampled_from([0.0, 0.1]), l2=st.sampled_from([0.0, 0.01]), draw=draws)
@FEW
def test_activity_penalty(
    peers: dict[str, Peer], vocabulary: Vocabulary, shape: Any, l1: float, l2: float, draw: int
) -> None:
    case = Case(({"kind": "activity_penalty", "l1": l1, "l2": l2},), shape, draw=draw)
    arrays = case.arrays()
    x = arrays["x"]
    expected = {
        "y": x,
        "penalty": np.array(l1 * np.abs(x).sum() + l2 * (x * x).sum()),
        "dx": arrays["cotangent"] + l1 * np.sign(x) + 2 * l2 * x,
    }
    for results in both(peers, "layers:forward_backward", case.facts, arrays):
        found = deviations(results, expected)
        vocabulary.saw("layer", "activity_penalty", max(found.values()), "TensorFlow, PyTorch, NumPy")
        assert max(found.values()) <= LIMIT, found


@pytest.mark.parametrize(
    "layer",
    [
        {"kind": "dense", "units": 2},
        *(
            {"kind": "activation", "function": function}
            for function in ("relu", "softmax", "leaky_relu", "gelu")
        ),
        {"kind": "prelu"},
        {"kind": "flatten"},
        {"kind": "reshape", "shape": (-1,)},
        {"kind": "permute", "dims": (2, 1)},
        {"kind": "slice", "stop": 1},
        {"kind": "activity_penalty", "l1": 0.1},
    ],
)
def test_no_samples(peers: dict[str, Peer], layer: dict[str, Any]) -> None:
    check_empty(peers, layer, (4, 3))


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        ({"kind": "reshape", "shape": [5, -1]}, ("(5, -1)", "(6, 6, 4)")),
        ({"kind": "reshape", "shape": [-1, -1]}, ("(-1, -1)",)),
        ({"kind": "reshape", "shape": [0, 4]}, ("shape", "0")),
        ({"kind": "permute", "dims": [1, 2]}, ("(1, 2)", "(6, 6, 4)")),
        ({"kind": "slice", "start": 2, "stop": 2}, ("start 2", "stop 2")),
        ({"kind": "slice", "stop": 5}, ("stop 5", "(6, 6, 4)")),
        ({"kind": "activation", "function": "swish"}, ("'swish'", "did you mean 'silu'")),
        ({"kind": "activity_penalty", "l1": -1}, ("l1", "-1")),
    ],
)
def test_what_does_not_fit_is_refused(layer: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(SpecError) as error:
        Case((layer,), (6, 6, 4)).model.tree()
    assert all(word in str(error.value) for word in words), error.value
