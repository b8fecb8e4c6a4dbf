"""Attention: TensorFlow, PyTorch, NumPy and the stock classes agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.common.base import rng
from parity.common.base.errors import SpecError
from parity.common.spec import ModelSpec
from parity.common.spec.initializers import initial_value
from parity_tests.helpers.layers import Case, both, check_layer, deviation, deviations
from parity_tests.peers import Arrays, Peer
from parity_tests.tables.vocabulary import LIMIT, Vocabulary

pytestmark = pytest.mark.usefixtures("peers")
FEW = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
draws = st.integers(0, 2**32 - 1)
batches = st.integers(0, 3)
conventions = st.sampled_from(["keras", "torch"])
PARTS = ("query", "key", "value", "output")


# The formulas, head by head and query by query.


def turned(head: Any, layout: str, base: float) -> Any:
    """(batch, tokens, size) with each pair of features as a complex number, turned."""
    size = head.shape[-1]
    result = head.copy()
    for i in range(size // 2):
        first, second = (i, i + size // 2) if layout == "half" else (2 * i, 2 * i + 1)
        angle = np.arange(head.shape[1]) * base ** (-2 * i / size)
        a, b = head[..., first], head[..., second]
        result[..., first] = a * np.cos(angle) - b * np.sin(angle)
        result[..., second] = a * np.sin(angle) + b * np.cos(angle)
    return result


def attention(
    x: Any, memory: Any, t: Any, layer: dict[str, Any], kept: Any = None, allowed: Any = None
) -> Any:
    """kept: (batch, heads, tokens, memory tokens) factors of the weights; allowed: (batch, memory tokens)."""
    heads, groups = layer["heads"], layer.get("key_value_heads") or layer["heads"]
    size = layer.get("head_size") or x.shape[-1] // heads
    query, key, value = (
        source @ t[f"{part}_kernel"] + t.get(f"{part}_bias", 0)
        for source, part in ((x, "query"), (memory, "key"), (memory, "value"))
    )
    columns = []
    for head in range(heads):
        group = head * groups // heads
        q = query[..., head * size : (head + 1) * size]
        k, v = (z[..., group * size : (group + 1) * size] for z in (key, value))
        if layer.get("rotary"):
            q, k = (turned(z, layer["rotary"], layer.get("rotary_base", 10000.0)) for z in (q, k))
        exponentials = np.exp(np.einsum("bts,bus->btu", q, k) / np.sqrt(size))
        if layer.get("causal"):
            exponentials = exponentials * np.tri(*exponentials.shape[1:])
        if allowed is not None:
            exponentials = exponentials * allowed[:, None, :]
        total = exponentials.sum(-1, keepdims=True)
        weights = exponentials / np.where(total == 0, 1, total)
        if kept is not None:
            weights = weights * kept[:, head]
        columns.append(weights @ v)
    return np.concatenate(columns, -1) @ t["output_kernel"] + t.get("output_bias", 0)


def kept_weights(case: Case, path: str, shape: tuple[int, ...], rate: float) -> np.ndarray:
    words = rng.sample_words(
        rng.derive_key(case.seed, "dropout", path),
        case.step,
        case.arrays()["sample_ids"],
        int(np.prod(shape)),
    )
    return ((words >= round(rate * 2**32)) / (1 - rate)).reshape(-1, *shape)


@st.composite
def layers(draw: Any, kind: str = "self_attention") -> dict[str, Any]:
    groups = draw(st.integers(1, 2))
    layer = {
        "kind": kind,
        "heads": groups * draw(st.integers(1, 2)),
        "key_value_heads": groups,
        "head_size": draw(st.sampled_from([2, 4])),
        "use_bias": draw(st.booleans()),
        "output_bias": draw(st.sampled_from([None, True, False])),
        "dropout": draw(st.sampled_from([0.0, 0.4])),
    }
    if kind == "self_attention":
        layer["causal"] = draw(st.booleans())
        layer["rotary"] = draw(st.sampled_from([None, "half", "interleaved"]))
        layer["rotary_base"] = draw(st.sampled_from([10000.0, 50.0]))
    return layer


@given(
    layer=layers(),
    tokens=st.integers(1, 5),
    width=st.integers(1, 5),
    training=st.booleans(),
    convention=conventions,
    batch=batches,
    draw=draws,
)
@FEW
def test_self_attention(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    layer: dict[str, Any],
    tokens: int,
    width: int,
    training: bool,
    convention: str,
    batch: int,
    draw: int,
) -> None:
    case = Case((layer,), (tokens, width), convention, batch, draw, training)
    kept = None
    if training and layer["dropout"]:
        kept = kept_weights(
            case, "self_attention/weights", (layer["heads"], tokens, tokens), layer["dropout"]
        )
    check_layer(peers, vocabulary, case, lambda x, t: attention(x, x, t, layer, kept))


@given(layer=layers(), tokens=st.integers(1, 6), training=st.booleans(), batch=batches, draw=draws)
@FEW
def test_masked_self_attention(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    layer: dict[str, Any],
    tokens: int,
    training: bool,
    batch: int,
    draw: int,
) -> None:
    """Padding anywhere; with three tokens to choose from, some sentences are nothing but padding."""
    layer = {**layer, "masked": True}
    embedding = {"kind": "embedding", "vocabulary": 3, "features": 3}
    case = Case(
        (embedding, layer), (tokens,), batch=batch, draw=draw, training=training, vocabulary=3, pad_id=0
    )
    kept = None
    if training and layer["dropout"]:
        kept = kept_weights(
            case, "self_attention/weights", (layer["heads"], tokens, tokens), layer["dropout"]
        )

    def numpy(x: Any, t: Any) -> Any:
        y = t["embedding"][x]
        return attention(y, y, t, layer, kept, allowed=x != 0)

    check_layer(peers, vocabulary, case, numpy)


def test_a_query_without_a_key_gives_the_output_bias(peers: dict[str, Peer]) -> None:
    """The first query of a causal sentence that begins with padding; no NaN in any gradient either."""
    for dropout in (0.0, 0.5):
        case = Case(
            (
                {"kind": "embedding", "vocabulary": 3, "features": 4},
                {"kind": "self_attention", "heads": 2, "causal": True, "masked": True, "dropout": dropout},
            ),
            (3,),
            vocabulary=3,
            pad_id=0,
        )
        arrays = case.arrays() | {"x": np.array([[0, 0, 1], [0, 0, 0], [1, 2, 0]])}
        for result in both(peers, "layers:forward_backward", case.facts, arrays):
            assert all(np.isfinite(value).all() for value in result.values())
            bias = arrays["parameters/self_attention/output_bias"]
            assert (result["y"][0, :2] == bias).all() and (result["y"][1] == bias).all()
            assert (result["y"][0, 2] != bias).all() or dropout


@given(
    layer=layers("cross_attention"),
    tokens=st.integers(1, 5),
    width=st.integers(1, 4),
    memory_width=st.integers(1, 4),
    training=st.booleans(),
    convention=conventions,
    batch=batches,
    draw=draws,
)
@FEW
def test_cross_attention(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    layer: dict[str, Any],
    tokens: int,
    width: int,
    memory_width: int,
    training: bool,
    convention: str,
    batch: int,
    draw: int,
) -> None:
    """The memory: one token more, of another width."""
    branch = [{"kind": "class_token"}, {"kind": "dense", "units": memory_width}]
    case = Case(({**layer, "layers": branch},), (tokens, width), convention, batch, draw, training)
    kept = None
    if training and layer["dropout"]:
        shape = (layer["heads"], tokens, tokens + 1)
        kept = kept_weights(case, "cross_attention/weights", shape, layer["dropout"])

    def numpy(x: Any, t: Any) -> Any:
        first = np.zeros((len(x), 1, width)) + t["class_token/embedding"]
        memory = np.concatenate([first, x], 1) @ t["dense/kernel"] + t["dense/bias"]
        return attention(x, memory, t, layer, kept)

    check_layer(peers, vocabulary, case, numpy)


def test_masked_cross_attention(peers: dict[str, Peer], vocabulary: Vocabulary) -> None:
    layer = {"kind": "cross_attention", "heads": 2, "masked": True, "layers": [{"kind": "dense", "units": 3}]}
    case = Case(
        ({"kind": "embedding", "vocabulary": 3, "features": 4}, layer), (5,), vocabulary=3, pad_id=0, batch=6
    )

    def numpy(x: Any, t: Any) -> Any:
        y = t["embedding"][x]
        memory = y @ t["dense/kernel"] + t["dense/bias"]
        return attention(y, memory, t, layer, allowed=x != 0)

    check_layer(peers, vocabulary, case, numpy)


PLAIN = {"kind": "self_attention", "heads": 2, "head_size": 4}
CONTROLS = {
    "causal": {"causal": True},
    "rotary": {"rotary": "half"},
    "dropout": {"dropout": 0.1},
    "masked": {"masked": True},
}


@pytest.mark.parametrize("option", CONTROLS)
def test_each_option_is_seen(peers: dict[str, Peer], option: str) -> None:
    assert _apart(peers, PLAIN, {**PLAIN, **CONTROLS[option]}) > 1e-6


def test_the_rotary_layouts_and_bases_differ(peers: dict[str, Peer]) -> None:
    half = {**PLAIN, "rotary": "half"}
    assert _apart(peers, half, half) < LIMIT
    assert _apart(peers, half, {**PLAIN, "rotary": "interleaved"}) > 1e-6
    assert _apart(peers, half, {**half, "rotary_base": 9000.0}) > 1e-6


def _apart(peers: dict[str, Peer], one: dict[str, Any], other: dict[str, Any]) -> float:
    """Deviation of one layer in TensorFlow from another, with the same numbers, in PyTorch."""
    embedding = {"kind": "embedding", "vocabulary": 4, "features": 6}
    cases = [Case((embedding, layer), (5,), vocabulary=4, pad_id=0) for layer in (one, other)]
    calls = [
        peers[framework].begin("layers:forward_backward", case.facts, case.arrays())
        for framework, case in zip(("tensorflow", "torch"), cases, strict=True)
    ]
    return max(deviations(*(call.result() for call in calls)).values())


# Against the stock classes.


def keras_weights(
    arrays: Arrays, layer: dict[str, Any], prefix: str
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Canonical name -> (Keras's number, its shape)."""
    found = {}
    heads = {"query": layer["heads"], "output": layer["heads"]}
    for part in PARTS:
        count = heads.get(part, layer.get("key_value_heads", layer["heads"]))
        for tensor in ("kernel", "bias"):
            shape = arrays[f"{prefix}{part}_{tensor}"].shape
            if part == "output":
                split = (count, shape[0] // count, shape[1]) if tensor == "kernel" else shape
            else:
                split = (*shape[:-1], count, shape[-1] // count)
            found[f"{prefix}{part}_{tensor}"] = (f"weight_{len(found)}", split)
    return found


KERAS = {
    "self": ("MultiHeadAttention", {"num_heads": 2, "key_dim": 3}, {}, {"heads": 2, "head_size": 3}),
    "causal": (
        "MultiHeadAttention",
        {"num_heads": 3, "key_dim": 2},
        {"use_causal_mask": True},
        {"heads": 3, "head_size": 2, "causal": True},
    ),
    "grouped": (
        "GroupQueryAttention",
        {"num_query_heads": 4, "num_key_value_heads": 2, "head_dim": 3},
        {},
        {"heads": 4, "key_value_heads": 2, "head_size": 3},
    ),
    "grouped causal": (
        "GroupQueryAttention",
        {"num_query_heads": 4, "num_key_value_heads": 1, "head_dim": 3},
        {"use_causal_mask": True},
        {"heads": 4, "key_value_heads": 1, "head_size": 3, "causal": True},
    ),
}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", KERAS)
def test_stock_keras_attention(
    peers: dict[str, Peer], vocabulary: Vocabulary, name: str, padded: bool
) -> None:
    """keras.layers' class against our PyTorch side, in the convention `keras`."""
    cls, options, call, layer = KERAS[name]
    layer = {"kind": "self_attention", **layer, "masked": padded}
    table = {"kind": "embedding", "vocabulary": 9, "features": 5}
    case = Case((table, layer), (6,), vocabulary=9, pad_id=0)
    arrays = case.arrays()
    # Some key is left to every query: what Keras does without one is another matter.
    arrays["x"] = np.array([[3, 4, 5, 6, 0, 0], [1, 2, 3, 4, 5, 6], [7, 0, 0, 0, 0, 0]])
    prefix = "parameters/self_attention/"
    weights = keras_weights(arrays, layer, prefix)
    stock = {number: arrays[key].reshape(shape) for key, (number, shape) in weights.items()}
    stock |= {"x": arrays["parameters/embedding/embedding"][arrays["x"]], "cotangent": arrays["cotangent"]}
    if padded:
        stock["mask"] = arrays["x"] != 0
    theirs = peers["tensorflow"]("sequence:stock", {"layer": cls, "options": options, "call": call}, stock)
    ours = peers["torch"]("layers:forward_backward", case.facts, arrays)
    found = {"y": deviation(ours["y"], theirs["y"])}
    for key, (number, _) in weights.items():
        found[key] = deviation(ours[f"d{key}"], theirs[f"d{number}"].reshape(arrays[key].shape))
    through_x = np.zeros((9, 5))
    np.add.at(through_x, arrays["x"], theirs["dx"] + theirs["dmemory"])
    found["dx"] = deviation(ours["dparameters/embedding/embedding"], through_x)
    vocabulary.saw("layer", "self_attention", max(found.values()), f"keras.layers.{cls}")
    assert max(found.values()) <= LIMIT, found


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_stock_torch_attention(
    peers: dict[str, Peer], vocabulary: Vocabulary, causal: bool, padded: bool
) -> None:
    """nn.MultiheadAttention against our TensorFlow side, in the convention `torch`."""
    layer = {"kind": "self_attention", "heads": 2, "causal": causal, "masked": padded}
    table = {"kind": "embedding", "vocabulary": 9, "features": 6}
    case = Case((table, layer), (6,), "torch", vocabulary=9, pad_id=0)
    arrays = case.arrays()
    arrays["x"] = np.array([[3, 4, 5, 6, 0, 0], [1, 2, 3, 4, 5, 6], [7, 0, 0, 0, 0, 0]])
    t = {part: arrays[f"parameters/self_attention/{part}"] for part in _tensors()}
    stock = {
        "x": arrays["parameters/embedding/embedding"][arrays["x"]],
        "cotangent": arrays["cotangent"],
        "weight/in_proj_weight": np.concatenate([t[f"{part}_kernel"].T for part in PARTS[:3]]),
        "weight/in_proj_bias": np.concatenate([t[f"{part}_bias"] for part in PARTS[:3]]),
        "weight/out_proj.weight": t["output_kernel"].T,
        "weight/out_proj.bias": t["output_bias"],
    }
    stock |= {"mask": arrays["x"] != 0} if padded else {}
    stock |= {"causal": np.tri(6, dtype=bool)} if causal else {}
    options = {"embed_dim": 6, "num_heads": 2, "batch_first": True}
    theirs = peers["torch"]("sequence:stock", {"layer": "MultiheadAttention", "options": options}, stock)
    ours = peers["tensorflow"]("layers:forward_backward", case.facts, arrays)
    native = {
        "y": theirs["y"],
        "dparameters/self_attention/output_kernel": theirs["dweight/out_proj.weight"].T,
        "dparameters/self_attention/output_bias": theirs["dweight/out_proj.bias"],
    }
    for place, part in enumerate(PARTS[:3]):
        rows = slice(6 * place, 6 * place + 6)
        native[f"dparameters/self_attention/{part}_kernel"] = theirs["dweight/in_proj_weight"][rows].T
        native[f"dparameters/self_attention/{part}_bias"] = theirs["dweight/in_proj_bias"][rows]
    through_x = np.zeros((9, 6))
    np.add.at(through_x, arrays["x"], theirs["dx"])
    native["dparameters/embedding/embedding"] = through_x
    found = {name: deviation(ours[name], value) for name, value in native.items()}
    vocabulary.saw("layer", "self_attention", max(found.values()), "nn.MultiheadAttention")
    assert max(found.values()) <= LIMIT, found


def _tensors() -> list[str]:
    return [f"{part}_{tensor}" for part in PARTS for tensor in ("kernel", "bias")]


def test_stock_cross_attention(peers: dict[str, Peer], vocabulary: Vocabulary) -> None:
    """Both stock classes with a memory of their own, against our other side."""
    layer = {"kind": "cross_attention", "heads": 2, "layers": [{"kind": "class_token"}]}
    case = Case((layer,), (4, 6))
    arrays = case.arrays()
    first = np.zeros((3, 1, 6)) + arrays["parameters/cross_attention/class_token/embedding"]
    stock = {
        "x": arrays["x"],
        "memory": np.concatenate([first, arrays["x"]], 1),
        "cotangent": arrays["cotangent"],
    }
    tensorflow, torch = both(peers, "layers:forward_backward", case.facts, arrays)
    prefix = "parameters/cross_attention/"
    weights = keras_weights(arrays, layer, prefix)
    numbered = {number: arrays[key].reshape(shape) for key, (number, shape) in weights.items()}
    facts: dict[str, Any] = {"layer": "MultiHeadAttention", "options": {"num_heads": 2, "key_dim": 3}}
    theirs = peers["tensorflow"]("sequence:stock", facts, stock | numbered)
    found = [deviation(torch["y"], theirs["y"])]
    found.append(deviation(torch["dx"], theirs["dx"] + theirs["dmemory"][:, 1:]))
    for key, (number, _) in weights.items():
        found.append(deviation(torch[f"d{key}"], theirs[f"d{number}"].reshape(arrays[key].shape)))
    native = {
        "weight/in_proj_weight": np.concatenate([arrays[f"{prefix}{part}_kernel"].T for part in PARTS[:3]]),
        "weight/in_proj_bias": np.concatenate([arrays[f"{prefix}{part}_bias"] for part in PARTS[:3]]),
        "weight/out_proj.weight": arrays[f"{prefix}output_kernel"].T,
        "weight/out_proj.bias": arrays[f"{prefix}output_bias"],
    }
    facts = {
        "layer": "MultiheadAttention",
        "options": {"embed_dim": 6, "num_heads": 2, "batch_first": True},
    }
    theirs = peers["torch"]("sequence:stock", facts, stock | native)
    found.append(deviation(tensorflow["y"], theirs["y"]))
    found.append(deviation(tensorflow["dx"], theirs["dx"] + theirs["dmemory"][:, 1:]))
    vocabulary.saw("layer", "cross_attention", max(found), "keras.layers.MultiHeadAttention")
    vocabulary.saw("layer", "cross_attention", max(found), "nn.MultiheadAttention")
    assert max(found) <= LIMIT


@pytest.mark.parametrize("layer", [PLAIN, {**PLAIN, "causal": True, "rotary": "half", "dropout": 0.2}])
def test_float32_stays_float32(peers: dict[str, Peer], layer: dict[str, Any]) -> None:
    case = Case((layer,), (5, 6))
    arrays = {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in case.arrays().items()}
    results = both(peers, "layers:forward_backward", {**case.facts, "precision": "float32"}, arrays)
    assert {value.dtype for result in results for value in result.values()} == {np.dtype(np.float32)}
    assert max(deviations(*results).values()) < 1e-5


# Initial values and zero-gradient directions.


def _parameters(convention: str, **layer: Any) -> dict[str, Any]:
    layer = {"kind": "self_attention", "heads": 4, **layer}
    model = ModelSpec.parse({"input_shape": (3, 32), "layers": [layer]}).resolve(convention)
    return {p.name: p for p in model.tree().children[0].parameters}


def test_kernels_start_as_either_framework_starts_them() -> None:
    """Keras reads the fans off kernels of rank three, PyTorch draws three kernels as one (row 43)."""
    limits = {
        "keras": {"query": (6 / (32 * 4 + 32 * 8)) ** 0.5, "output": (6 / (32 + 32 * 4)) ** 0.5},
        "torch": {"query": (6 / (32 + 96)) ** 0.5, "output": 32**-0.5},
    }
    for convention, expected in limits.items():
        parameters = _parameters(convention)
        for part, limit in expected.items():
            values = initial_value(parameters[f"{part}_kernel"], (1, 2))
            assert 0.97 * limit < np.abs(values).max() <= limit
            assert (initial_value(parameters[f"{part}_bias"], (1, 2)) == 0).all()


def test_a_given_initializer_holds_for_all_kernels_unless_the_output_has_its_own() -> None:
    parameters = _parameters("torch", kernel_initializer="normal_0.02")
    assert {parameters[f"{part}_kernel"].initializer for part in PARTS} == {"normal_0.02"}
    parameters = _parameters("torch", kernel_initializer="normal_0.02", output_kernel_initializer="zeros")
    assert parameters["output_kernel"].initializer == "zeros"


@pytest.mark.parametrize("option", [{}, {"causal": True}, {"key_value_heads": 2}, {"dropout": 0.3}])
def test_a_key_bias_is_a_null_direction(peers: dict[str, Peer], option: dict[str, Any]) -> None:
    null = {name for name, p in _parameters("keras", **option).items() if p.null_direction}
    assert null == {"key_bias"}
    case = Case(({"kind": "self_attention", "heads": 4, **option},), (5, 8))
    for result in both(peers, "layers:forward_backward", case.facts, case.arrays()):
        size = {
            part: np.abs(result[f"dparameters/self_attention/{part}"]).max()
            for part in ("key_kernel", "key_bias")
        }
        # A sum of the same terms as the kernel's gradient has, which cancel.
        assert size["key_bias"] < 1e-14 * size["key_kernel"]


def test_with_rotary_positions_a_key_bias_is_none(peers: dict[str, Peer]) -> None:
    assert not any(p.null_direction for p in _parameters("keras", rotary="half").values())
    case = Case(({"kind": "self_attention", "heads": 2, "rotary": "half"},), (5, 8))
    for result in both(peers, "layers:forward_backward", case.facts, case.arrays()):
        assert np.abs(result["dparameters/self_attention/key_bias"]).max() > 1e-6


REFUSED = {
    "heads": ((3, 6), {"heads": 4}, ("heads 4", "6 features")),
    "groups": ((3, 6), {"heads": 3, "key_value_heads": 2}, ("key_value_heads 2", "heads 3")),
    "odd pairs": ((3, 6), {"heads": 2, "rotary": "half"}, ("even head size", "3")),
    "an image": ((3, 3, 6), {"heads": 2}, ("(tokens, features)", "(3, 3, 6)")),
    "masked memory": (
        (3, 6),
        {
            "kind": "cross_attention",
            "heads": 2,
            "masked": True,
            "layers": [{"kind": "class_token"}],
        },
        ("masked", "3 tokens", "4"),
    ),
    "a memory of one vector": (
        (3, 6),
        {"kind": "cross_attention", "heads": 2, "layers": [{"kind": "take_token"}]},
        ("memory", "(6,)"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    shape, layer, words = REFUSED[name]
    with pytest.raises(SpecError) as error:
        ModelSpec.parse({"input_shape": shape, "layers": [{"kind": "self_attention", **layer}]}).tree()
    assert all(word in str(error.value) for word in words) and "\n" not in str(error.value)
