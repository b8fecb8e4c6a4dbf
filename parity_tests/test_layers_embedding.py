"""Embeddings, positions and single tokens: TensorFlow, PyTorch, NumPy and the stock classes agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.common.base.errors import SpecError
from parity.common.spec import ModelSpec
from parity.common.spec.initializers import initial_value
from parity.common.spec.layers import ParameterSpec
from parity_tests.helpers.layers import Case, both, check_layer, deviation, deviations
from parity_tests.peers import Peer
from parity_tests.tables.vocabulary import LIMIT, Vocabulary

pytestmark = pytest.mark.usefixtures("peers")
FEW = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
draws = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 5)
batches = st.integers(0, 3)
conventions = st.sampled_from(["keras", "torch"])


@given(
    shape=st.lists(sizes, max_size=2).map(tuple),
    vocabulary_size=st.integers(2, 6),
    features=sizes,
    padding=st.booleans(),
    convention=conventions,
    batch=batches,
    draw=draws,
)
@FEW
def test_embedding(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    shape: Any,
    vocabulary_size: int,
    features: int,
    padding: bool,
    convention: str,
    batch: int,
    draw: int,
) -> None:
    padding_id = 1 if padding else None
    layer = {
        "kind": "embedding",
        "vocabulary": vocabulary_size,
        "features": features,
        "padding_id": padding_id,
    }
    case = Case((layer,), shape or (3,), convention, batch, draw, vocabulary=vocabulary_size)

    def numpy(x: Any, t: Any) -> Any:
        table = t["embedding"].copy()
        if padding:
            # No derivative: what the complex step adds is taken away.
            table[padding_id] = table[padding_id].real
        return table[x]

    check_layer(peers, vocabulary, case, numpy)


def test_embedding_of_floats_that_hold_integers(peers: dict[str, Peer]) -> None:
    case = Case(({"kind": "embedding", "vocabulary": 5, "features": 3},), (4,))
    arrays = case.arrays() | {"x": np.array([[0.0, 4.0, 4.0, 2.0]] * 3)}
    for result in both(peers, "layers:forward_backward", case.facts, arrays):
        table = arrays["parameters/embedding/embedding"]
        assert (result["y"] == table[arrays["x"].astype(int)]).all()


def test_the_padding_row_differs_only_in_its_gradient(peers: dict[str, Peer]) -> None:
    layer = {"kind": "embedding", "vocabulary": 3, "features": 2}
    case = Case((layer,), (6,), vocabulary=3)
    padded = Case(({**layer, "padding_id": 0},), (6,), vocabulary=3)
    name = "dparameters/embedding/embedding"
    for peer in peers.values():
        plain, without = (peer("layers:forward_backward", c.facts, c.arrays()) for c in (case, padded))
        assert (plain["y"] == without["y"]).all()
        assert (plain[name][1:] == without[name][1:]).all()
        assert (np.abs(plain[name][0]) > 1e-6).all() and (without[name][0] == 0).all()


@given(
    tokens=sizes,
    features=sizes,
    segments=st.booleans(),
    bias=st.booleans(),
    padding=st.booleans(),
    batch=batches,
    draw=draws,
)
@FEW
def test_tied_embedding(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    tokens: int,
    features: int,
    segments: bool,
    bias: bool,
    padding: bool,
    batch: int,
    draw: int,
) -> None:
    beside = [{"kind": "segment_embedding", "features": features, "separator_id": 2}] if segments else []
    layer = {
        "kind": "tied_embedding",
        "vocabulary": 5,
        "features": features,
        "beside": beside,
        "output_bias": bias,
        "padding_id": 1 if padding else None,
        "layers": [{"kind": "dense", "units": features}, {"kind": "activation", "function": "tanh"}],
    }
    case = Case((layer,), (tokens,), batch=batch, draw=draw, vocabulary=5)

    def numpy(x: Any, t: Any) -> Any:
        table = t["embedding"].copy()
        if padding:
            table[1] = table[1].real
        y = table[x]
        if segments:
            y = y + t["segment_embedding/embedding"][segments_of(x, 2, 2)]
        y = np.tanh(y @ t["dense/kernel"] + t["dense/bias"])
        return y @ t["embedding"].T + t.get("output_bias", 0)

    check_layer(peers, vocabulary, case, numpy)


def segments_of(tokens: np.ndarray, separator: int | None, types: int) -> np.ndarray:
    """Segment of each token, counted one by one."""
    result = np.zeros(tokens.shape, int)
    for row, sentence in enumerate(tokens):
        seen = 0
        for place, token in enumerate(sentence):
            result[row, place] = min(seen, types - 1)
            seen += token == separator
    return result


@given(
    tokens=st.integers(1, 8),
    features=sizes,
    types=st.integers(1, 3),
    separator=st.sampled_from([None, 1]),
    convention=conventions,
    batch=batches,
    draw=draws,
)
@FEW
def test_segment_embedding(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    tokens: int,
    features: int,
    types: int,
    separator: int | None,
    convention: str,
    batch: int,
    draw: int,
) -> None:
    layer = {
        "kind": "segment_embedding",
        "features": features,
        "types": types,
        "separator_id": separator,
    }
    case = Case((layer,), (tokens,), convention, batch, draw, vocabulary=3)
    check_layer(peers, vocabulary, case, lambda x, t: t["embedding"][segments_of(x, separator, types)])


def test_a_separator_belongs_to_the_segment_it_ends(peers: dict[str, Peer]) -> None:
    case = Case(
        ({"kind": "segment_embedding", "features": 1, "separator_id": 1},), (5,), vocabulary=3, batch=1
    )
    table = np.array([[10.0], [20.0]])
    arrays = case.arrays() | {
        "x": np.array([[0, 1, 2, 1, 0]]),
        "parameters/segment_embedding/embedding": table,
    }
    for result in both(peers, "layers:forward_backward", case.facts, arrays):
        assert result["y"].ravel().tolist() == [10, 10, 20, 20, 20]


@given(
    tokens=sizes, features=sizes, more=st.integers(0, 3), convention=conventions, batch=batches, draw=draws
)
@FEW
def test_position_embedding(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    tokens: int,
    features: int,
    more: int,
    convention: str,
    batch: int,
    draw: int,
) -> None:
    layer = {"kind": "position_embedding", "positions": tokens + more if more else None}
    case = Case((layer,), (tokens, features), convention, batch, draw)
    check_layer(peers, vocabulary, case, lambda x, t: x + t["embedding"][:tokens])


@given(tokens=st.integers(1, 9), features=st.integers(1, 7), base=st.sampled_from([10000, 50]), batch=batches)
@FEW
def test_sinusoidal_positions(
    peers: dict[str, Peer], vocabulary: Vocabulary, tokens: int, features: int, base: int, batch: int
) -> None:
    table = np.array(
        [
            [(np.cos if j % 2 else np.sin)(p / base ** ((j - j % 2) / features)) for j in range(features)]
            for p in range(tokens)
        ]
    )
    layer = {"kind": "sinusoidal_positions", "base": base}
    check_layer(peers, vocabulary, Case((layer,), (tokens, features), batch=batch), lambda x, t: x + table)


def test_another_base_is_seen(peers: dict[str, Peer]) -> None:
    def y(framework: str, base: int) -> Any:
        case = Case(({"kind": "sinusoidal_positions", "base": base},), (5, 4))
        return peers[framework]("layers:forward_backward", case.facts, case.arrays())["y"]

    assert deviation(y("tensorflow", 10000), y("torch", 9990)) > 1e-6


@given(tokens=sizes, features=sizes, batch=batches, draw=draws)
@FEW
def test_class_token(
    peers: dict[str, Peer], vocabulary: Vocabulary, tokens: int, features: int, batch: int, draw: int
) -> None:
    case = Case(({"kind": "class_token"},), (tokens, features), batch=batch, draw=draw)

    def numpy(x: Any, t: Any) -> Any:
        first = np.zeros((len(x), 1, features)) + t["embedding"]
        return np.concatenate([first, x], 1)

    check_layer(peers, vocabulary, case, numpy)


@given(tokens=sizes, features=sizes, place=st.integers(-5, 4), batch=batches)
@FEW
def test_take_token(
    peers: dict[str, Peer], vocabulary: Vocabulary, tokens: int, features: int, place: int, batch: int
) -> None:
    index = place % tokens if place >= 0 else -1 - (place % tokens)
    case = Case(({"kind": "take_token", "index": index},), (tokens, features), batch=batch)
    check_layer(peers, vocabulary, case, lambda x, t: x[:, index])


@pytest.mark.parametrize("padding", [None, 2])
def test_stock_embeddings(peers: dict[str, Peer], vocabulary: Vocabulary, padding: int | None) -> None:
    """keras.layers.Embedding against our PyTorch side, nn.Embedding against our TensorFlow side."""
    layer = {"kind": "embedding", "vocabulary": 7, "features": 3, "padding_id": padding}
    case = Case((layer,), (6,), vocabulary=7)
    arrays = case.arrays()
    table = arrays["parameters/embedding/embedding"]
    stock = {"x": arrays["x"], "cotangent": arrays["cotangent"]}
    name = "dparameters/embedding/embedding"
    ours = both(peers, "layers:forward_backward", case.facts, arrays)
    options = {"num_embeddings": 7, "embedding_dim": 3, "padding_idx": padding}
    theirs = peers["torch"](
        "sequence:stock", {"layer": "Embedding", "options": options}, stock | {"weight/weight": table}
    )
    found = [deviation(ours[0]["y"], theirs["y"]), deviation(ours[0][name], theirs["dweight/weight"])]
    if padding is None:
        facts = {"layer": "Embedding", "options": {"input_dim": 7, "output_dim": 3}}
        theirs = peers["tensorflow"]("sequence:stock", facts, stock | {"weight_0": table})
        found += [deviation(ours[1]["y"], theirs["y"]), deviation(ours[1][name], theirs["dweight_0"])]
    vocabulary.saw("layer", "embedding", max(found), "keras.layers.Embedding, nn.Embedding")
    assert max(found) <= LIMIT


LAYERS = {
    "embedding": ({"kind": "embedding", "vocabulary": 5, "features": 4}, {"kind": "class_token"}),
    "tied": (
        {
            "kind": "tied_embedding",
            "vocabulary": 5,
            "features": 4,
            "beside": [{"kind": "segment_embedding", "features": 4, "separator_id": 1}],
            "layers": [{"kind": "position_embedding"}, {"kind": "sinusoidal_positions"}],
        },
    ),
}


@pytest.mark.parametrize("layers", LAYERS)
def test_float32_stays_float32(peers: dict[str, Peer], layers: str) -> None:
    case = Case(LAYERS[layers], (6,), vocabulary=5)
    arrays = {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in case.arrays().items()}
    results = both(peers, "layers:forward_backward", {**case.facts, "precision": "float32"}, arrays)
    assert {value.dtype for result in results for value in result.values()} == {np.dtype(np.float32)}
    assert max(deviations(*results).values()) < 1e-5


REFUSED = {
    "padding outside": (
        (6,),
        {"kind": "embedding", "vocabulary": 5, "features": 2, "padding_id": 5},
        ("padding_id", "5"),
    ),
    "too few positions": (
        (6, 2),
        {"kind": "position_embedding", "positions": 5},
        ("positions 5", "6 tokens"),
    ),
    "positions of an image": ((2, 2, 1), {"kind": "sinusoidal_positions"}, ("(tokens, features)",)),
    "segments of vectors": ((6, 2), {"kind": "segment_embedding", "features": 2}, ("(tokens,)", "(6, 2)")),
    "no such token": ((3, 2), {"kind": "take_token", "index": -4}, ("-4", "3")),
    "class token of a vector": ((3,), {"kind": "class_token"}, ("(tokens, features)", "(3,)")),
    "tied to other features": (
        (3,),
        {
            "kind": "tied_embedding",
            "vocabulary": 5,
            "features": 2,
            "layers": [{"kind": "dense", "units": 3}],
        },
        ("2 features", "(3, 3)"),
    ),
    "beside of another shape": (
        (3,),
        {
            "kind": "tied_embedding",
            "vocabulary": 5,
            "features": 2,
            "beside": [{"kind": "segment_embedding", "features": 3}],
            "layers": [{"kind": "dense", "units": 2}],
        },
        ("(3, 2)", "(3, 3)"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    shape, layer, words = REFUSED[name]
    with pytest.raises(SpecError) as error:
        ModelSpec.parse({"input_shape": shape, "layers": [layer]}).tree()
    assert all(word in str(error.value) for word in words) and "\n" not in str(error.value)


def test_tables_start_as_either_framework_starts_them() -> None:
    """DIFFERENCES row 45."""
    for kind in ("embedding", "tied_embedding", "position_embedding", "segment_embedding"):
        for convention, deviation_of in {"keras": 0.05 / 3**0.5, "torch": 1.0}.items():
            data: dict[str, Any] = {"kind": kind}
            if kind != "position_embedding":
                data |= {"features": 50}
            if "segment" not in kind and "position" not in kind:
                data |= {"vocabulary": 40}
            if kind == "tied_embedding":
                data |= {"layers": [{"kind": "dense", "units": 50}]}
            shape = (40, 50) if kind == "position_embedding" else (40,)
            model = ModelSpec.parse({"input_shape": shape, "layers": [data]}).resolve(convention)
            table: ParameterSpec = model.tree().children[0].parameters[0]
            assert np.isclose(initial_value(table, (1, 2)).std(), deviation_of, rtol=0.15)
