"""Recurrent layers: TensorFlow, PyTorch, NumPy and the stock classes agree."""

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
KINDS = ("lstm", "gru", "simple_rnn")
GATES = {"lstm": 4, "gru": 3, "simple_rnn": 1}


# The formulas, one sample and one token at a time.


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def cell(
    kind: str, reset: str, x: Any, h: Any, c: Any, weights: Any, kept_x: Any, kept_h: Any
) -> tuple[Any, Any]:
    """(h, c) after input x; kept_x and kept_h: dropout's factors of each gate."""
    kernel, recurrent, bias, recurrent_bias = weights
    units = len(h)

    def of_input(gate: int) -> Any:
        columns = slice(gate * units, (gate + 1) * units)
        return (x * kept_x[gate]) @ kernel[:, columns] + bias[columns]

    def of_state(gate: int, state: Any) -> Any:
        columns = slice(gate * units, (gate + 1) * units)
        return (state * kept_h[gate]) @ recurrent[:, columns] + recurrent_bias[columns]

    if kind == "simple_rnn":
        return np.tanh(of_input(0) + of_state(0, h)), c
    if kind == "lstm":
        i, f, o = (sigmoid(of_input(gate) + of_state(gate, h)) for gate in (0, 1, 3))
        c = f * c + i * np.tanh(of_input(2) + of_state(2, h))
        return o * np.tanh(c), c
    z, r = (sigmoid(of_input(gate) + of_state(gate, h)) for gate in (0, 1))
    inner = r * of_state(2, h) if reset == "after" else of_state(2, r * h)
    return z * h + (1 - z) * np.tanh(of_input(2) + inner), c


def recurrent(x: Any, t: Any, layer: dict[str, Any], kept: dict[str, Any], mask: Any = None) -> Any:
    """Outputs of a layer; `kept`: dropout's masks by tensor prefix + "input" and "recurrent"."""
    kind, units = layer["kind"], layer["units"]
    width = GATES[kind] * units
    direction = layer.get("direction", "forward")
    passes = [("", direction == "backward")] + [("backward_", True)] * (direction == "both")
    outputs = []
    for prefix, backward in passes:
        zero = np.zeros(width)
        weights = (
            t[f"{prefix}kernel"],
            t[f"{prefix}recurrent_kernel"],
            t.get(f"{prefix}bias", zero),
            t.get(f"{prefix}recurrent_bias", zero),
        )
        y = np.zeros((*x.shape[:2], units), complex)
        last = np.zeros((len(x), units), complex)
        for sample in range(len(x)):
            kept_x = _of_gates(kept.get(f"{prefix}input"), sample, GATES[kind])
            kept_h = _of_gates(kept.get(f"{prefix}recurrent"), sample, GATES[kind])
            h = c = np.zeros(units)
            for token in range(x.shape[1])[:: -1 if backward else 1]:
                counts = mask is None or mask[sample, token]
                if counts:
                    h, c = cell(
                        kind, layer.get("reset", "after"), x[sample, token], h, c, weights, kept_x, kept_h
                    )
                zeroed = layer.get("padded_outputs") == "zero" and not counts
                y[sample, token] = 0 if zeroed else h
            last[sample] = h
        outputs.append(y if layer.get("return_sequences") else last)
    result = sum(outputs) if layer.get("merge") == "sum" else np.concatenate(outputs, -1)
    return result if np.iscomplexobj(x) or any(np.iscomplexobj(v) for v in t.values()) else result.real


def _of_gates(kept: Any, sample: int, gates: int) -> Any:
    if kept is None:
        return np.ones(gates)
    return np.broadcast_to(kept[sample], (gates, kept.shape[-1]))


def masks(case: Case, layer: dict[str, Any], features: int) -> dict[str, Any]:
    """Dropout's masks in training: one for all gates, unless the state is dropped too."""
    found: dict[str, Any] = {}
    gates = GATES[layer["kind"]]
    rates = {"input": layer.get("input_dropout", 0.0), "recurrent": layer.get("recurrent_dropout", 0.0)}
    shapes = {"input": (gates if rates["recurrent"] else 1, features), "recurrent": (gates, layer["units"])}
    for prefix in ("", "backward_"):
        for name, rate in rates.items():
            if rate and case.training:
                key = rng.derive_key(case.seed, "dropout", f"{layer['kind']}/{prefix}{name}")
                ids = case.arrays()["sample_ids"]
                words = rng.sample_words(key, case.step, ids, int(np.prod(shapes[name])))
                keep = (words >= round(rate * 2**32)) / (1 - rate)
                found[prefix + name] = keep.reshape(-1, *shapes[name])
    return found


@st.composite
def layers(draw: Any, kind: str) -> dict[str, Any]:
    layer = {
        "kind": kind,
        "units": draw(st.integers(1, 4)),
        "return_sequences": draw(st.booleans()),
        "direction": draw(st.sampled_from(["forward", "backward", "both"])),
        "merge": draw(st.sampled_from(["concatenate", "sum"])),
        "use_bias": draw(st.booleans()),
        "input_dropout": draw(st.sampled_from([0.0, 0.0, 0.4])),
        "recurrent_dropout": draw(st.sampled_from([0.0, 0.0, 0.4])),
        "padded_outputs": draw(st.sampled_from(["repeat", "zero"])),
    }
    if kind == "gru":
        layer["reset"] = draw(st.sampled_from(["after", "before"]))
    return layer


@pytest.mark.parametrize("kind", KINDS)
@given(
    data=st.data(),
    tokens=st.integers(1, 5),
    features=st.integers(1, 4),
    training=st.booleans(),
    convention=conventions,
    batch=batches,
    draw=draws,
)
@FEW
def test_recurrent_layer(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    kind: str,
    data: Any,
    tokens: int,
    features: int,
    training: bool,
    convention: str,
    batch: int,
    draw: int,
) -> None:
    layer = data.draw(layers(kind))
    case = Case((layer,), (tokens, features), convention, batch, draw, training)
    kept = masks(case, layer, features)
    check_layer(peers, vocabulary, case, lambda x, t: recurrent(x, t, layer, kept))


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), tokens=st.integers(1, 6), convention=conventions, batch=batches, draw=draws)
@FEW
def test_masked_recurrent_layer(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    kind: str,
    data: Any,
    tokens: int,
    convention: str,
    batch: int,
    draw: int,
) -> None:
    """Padding anywhere: at the end, at the beginning, between, and nothing else."""
    layer = {**data.draw(layers(kind)), "masked": True}
    table = {"kind": "embedding", "vocabulary": 3, "features": 3}
    case = Case((table, layer), (tokens,), convention, batch, draw, vocabulary=3, pad_id=0)
    kept = masks(case, layer, 3)
    check_layer(
        peers, vocabulary, case, lambda x, t: recurrent(t["embedding"][x], t, layer, kept, mask=x != 0)
    )


# Negative controls: what is not the same must not look the same.

CONTROLS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "reset": ({"kind": "gru", "use_bias": False}, {"reset": "before"}),
    "direction": ({"kind": "lstm"}, {"direction": "backward"}),
    "input dropout": ({"kind": "lstm"}, {"input_dropout": 0.1}),
    "recurrent dropout": ({"kind": "gru"}, {"recurrent_dropout": 0.1}),
    "masked": ({"kind": "simple_rnn"}, {"masked": True}),
    "padded outputs": (
        {"kind": "lstm", "masked": True, "return_sequences": True, "padded_outputs": "repeat"},
        {"padded_outputs": "zero"},
    ),
    "kind of dropout mask": (
        {"kind": "lstm", "input_dropout": 0.3, "recurrent_dropout": 1e-9},
        {"recurrent_dropout": 0.0},
    ),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_each_option_is_seen(peers: dict[str, Peer], name: str) -> None:
    layer, change = CONTROLS[name]
    table = {"kind": "embedding", "vocabulary": 4, "features": 3}
    cases = [
        Case((table, {"units": 3, **layer, **more}), (6,), vocabulary=4, pad_id=0) for more in ({}, change)
    ]
    calls = [
        peers[framework].begin("layers:forward_backward", case.facts, case.arrays())
        for framework, case in zip(("tensorflow", "torch"), cases, strict=True)
    ]
    assert max(deviations(*(call.result() for call in calls)).values()) > 1e-6


def test_keras_zeroes_padded_outputs_in_both_directions_only() -> None:
    def zeroed(convention: str, direction: str) -> bool:
        layer = {"kind": "lstm", "units": 2, "direction": direction}
        model = ModelSpec.parse({"input_shape": (3, 2), "layers": [layer]}).resolve(convention)
        return model.layers[0].zero_padded

    assert zeroed("keras", "both") and not zeroed("keras", "forward")
    assert zeroed("torch", "both") and zeroed("torch", "forward")


# Against the stock classes.

RIGHT_PADDED = np.array([[1, 2, 3, 0, 0], [3, 2, 1, 2, 3], [2, 0, 0, 0, 0]])
SCATTERED = np.array([[0, 2, 0, 3, 0], [3, 0, 1, 2, 3], [0, 0, 0, 0, 0]])


def _case(layer: dict[str, Any], convention: str, padded: bool) -> tuple[Case, Arrays]:
    """A layer behind a table of four rows, so that there can be padding."""
    table = {"kind": "embedding", "vocabulary": 4, "features": 3}
    case = Case((table, {**layer, "masked": padded}), (5,), convention, vocabulary=4, pad_id=0)
    return case, case.arrays()


def _through_the_table(tokens: np.ndarray, dx: np.ndarray) -> np.ndarray:
    result = np.zeros((4, dx.shape[-1]))
    np.add.at(result, tokens, dx)
    return result


KERAS_CLASSES = {
    "lstm": ("LSTM", {}, {}),
    "gru": ("GRU", {}, {}),
    "gru_reset_before": ("GRU", {"reset_after": False}, {"reset": "before"}),
    "simple_rnn": ("SimpleRNN", {}, {}),
}
KERAS_WAYS: dict[str, tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any]]] = {
    "last": ({}, None, {}),
    "sequence": ({"return_sequences": True}, None, {"return_sequences": True}),
    "backwards": ({"go_backwards": True}, None, {"direction": "backward"}),
    "backwards_sequence": (
        {"go_backwards": True, "return_sequences": True},
        None,
        {"direction": "backward", "return_sequences": True},
    ),
    "both": ({}, {}, {"direction": "both"}),
    "both_sequences": (
        {"return_sequences": True},
        {"merge_mode": "sum"},
        {"direction": "both", "return_sequences": True, "merge": "sum"},
    ),
}


def keras_weights(arrays: Arrays, prefix: str, bidirectional: bool) -> tuple[Arrays, dict[str, Any]]:
    """Keras's weights, and for each canonical name (Keras's number, row of it or all)."""
    weights: Arrays = {}
    places: dict[str, Any] = {}
    for way in ("", "backward_") if bidirectional else ("",):
        for name in ("kernel", "recurrent_kernel", "bias"):
            number, key = f"weight_{len(weights)}", f"{prefix}{way}{name}"
            weights[number], places[key] = arrays[key], (number, ...)
            second = f"{prefix}{way}recurrent_bias"
            if name == "bias" and second in arrays:
                weights[number] = np.stack([arrays[key], arrays[second]])
                places |= {key: (number, 0), second: (number, 1)}
    return weights, places


@pytest.mark.sweep
@pytest.mark.parametrize("padding", ["none", "right", "scattered"])
@pytest.mark.parametrize("way", KERAS_WAYS)
@pytest.mark.parametrize("cls", KERAS_CLASSES)
def test_stock_keras(
    peers: dict[str, Peer], vocabulary: Vocabulary, cls: str, way: str, padding: str
) -> None:
    """keras.layers' class in its own defaults against our PyTorch side in the convention `keras`."""
    name, options, fields = KERAS_CLASSES[cls]
    more_options, bidirectional, more_fields = KERAS_WAYS[way]
    layer = {"kind": cls.partition("_reset")[0], "units": 4, **fields, **more_fields}
    case, arrays = _case(layer, "keras", padding != "none")
    arrays["x"] = SCATTERED if padding == "scattered" else RIGHT_PADDED
    prefix = f"parameters/{layer['kind']}/"
    weights, places = keras_weights(arrays, prefix, bidirectional is not None)
    # Keras leaves the outputs of a backward pass in the order of their making.
    flipped = way == "backwards_sequence"
    cotangent = arrays["cotangent"][:, ::-1] if flipped else arrays["cotangent"]
    x = arrays["parameters/embedding/embedding"][arrays["x"]]
    stock = {"x": x, "cotangent": cotangent, **weights}
    if padding != "none":
        stock["mask"] = arrays["x"] != 0
    facts = {
        "layer": name,
        "options": {"units": 4, **options, **more_options},
        "bidirectional": bidirectional,
    }
    call = peers["tensorflow"].begin("sequence:stock", facts, stock)
    ours, theirs = peers["torch"]("layers:forward_backward", case.facts, arrays), call.result()
    found = {"y": deviation(ours["y"], theirs["y"][:, ::-1] if flipped else theirs["y"])}
    for key, (number, row) in places.items():
        found[key] = deviation(ours[f"d{key}"], theirs[f"d{number}"][row])
    through = _through_the_table(arrays["x"], theirs["dx"])
    found["dx"] = deviation(ours["dparameters/embedding/embedding"], through)
    vocabulary.saw("layer", layer["kind"], max(found.values()), f"keras.layers.{name}")
    assert max(found.values()) <= LIMIT, found


@pytest.mark.parametrize("drops_state", [False, True])
@pytest.mark.parametrize("cls", KERAS_CLASSES)
def test_stock_keras_with_dropout_in_the_cell(
    peers: dict[str, Peer], vocabulary: Vocabulary, cls: str, drops_state: bool
) -> None:
    """Keras's cells, given our masks: where they fall, and how many there are (DIFFERENCES row 47)."""
    name, options, fields = KERAS_CLASSES[cls]
    rates = {"input_dropout": 0.4, "recurrent_dropout": 0.3 if drops_state else 0.0}
    layer = {"kind": cls.partition("_reset")[0], "units": 4, **fields, **rates}
    case = Case((layer,), (5, 3))
    arrays = case.arrays()
    weights, places = keras_weights(arrays, f"parameters/{layer['kind']}/", False)
    kept = masks(case, layer, 3)
    stock = {"x": arrays["x"], "cotangent": arrays["cotangent"], **weights}
    stock["kept_input"] = kept["input"].swapaxes(0, 1)
    stock["kept_state"] = kept["recurrent"].swapaxes(0, 1) if drops_state else np.ones((1, 3, 4))
    dropouts = {"dropout": 0.4, "recurrent_dropout": rates["recurrent_dropout"]}
    facts = {"layer": name, "options": {"units": 4, **options, **dropouts}, "call": {"training": True}}
    theirs = peers["tensorflow"]("sequence:stock", facts, stock)
    ours = peers["torch"]("layers:forward_backward", case.facts, arrays)
    found = {part: deviation(ours[part], theirs[part]) for part in ("y", "dx")}
    for key, (number, row) in places.items():
        found[key] = deviation(ours[f"d{key}"], theirs[f"d{number}"][row])
    vocabulary.saw("layer", layer["kind"], max(found.values()), f"keras.layers.{name}")
    assert max(found.values()) <= LIMIT, found


TORCH_CLASSES = {"lstm": "LSTM", "gru": "GRU", "simple_rnn": "RNN"}
TORCH_NAMES = {
    "kernel": "weight_ih",
    "recurrent_kernel": "weight_hh",
    "bias": "bias_ih",
    "recurrent_bias": "bias_hh",
}


def torch_order(kind: str, tensor: np.ndarray) -> np.ndarray:
    """Canonical columns to PyTorch's, or back: only the first two gates of a GRU change places."""
    if kind == "gru":
        z, r, n = np.split(tensor, 3, -1)
        tensor = np.concatenate([r, z, n], -1)
    return tensor.T


@pytest.mark.sweep
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("direction", ["forward", "both"])
@pytest.mark.parametrize("sequences", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_stock_torch(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    kind: str,
    sequences: bool,
    direction: str,
    padded: bool,
) -> None:
    """nn.LSTM, nn.GRU and nn.RNN in two layers, against our TensorFlow side in the convention `torch`."""
    table = {"kind": "embedding", "vocabulary": 4, "features": 3}
    layer = {"kind": kind, "units": 4, "direction": direction, "masked": padded}
    stack = [
        {**layer, "name": "l0", "return_sequences": True},
        {**layer, "name": "l1", "return_sequences": sequences},
    ]
    case = Case((table, *stack), (5,), "torch", vocabulary=4, pad_id=0)
    arrays = case.arrays() | {"x": RIGHT_PADDED}
    names = {
        f"{number}/{way}{ours}": f"{theirs}_{number}{'_reverse' if way else ''}"
        for number in ("l0", "l1")
        for way in (("", "backward_") if direction == "both" else ("",))
        for ours, theirs in TORCH_NAMES.items()
    }
    stock = {
        f"weight/{native}": torch_order(kind, arrays[f"parameters/{key}"]) for key, native in names.items()
    }
    stock["x"] = arrays["parameters/embedding/embedding"][arrays["x"]]
    stock["cotangent"] = arrays["cotangent"]
    if padded:
        stock["mask"] = arrays["x"] != 0
    options = {"input_size": 3, "hidden_size": 4, "num_layers": 2, "batch_first": True}
    facts = {
        "layer": TORCH_CLASSES[kind],
        "options": {**options, "bidirectional": direction == "both"},
        "last": not sequences,
    }
    call = peers["torch"].begin("sequence:stock", facts, stock)
    ours, theirs = peers["tensorflow"]("layers:forward_backward", case.facts, arrays), call.result()
    found = {"y": deviation(ours["y"], theirs["y"])}
    for key, native in names.items():
        canonical = torch_order(kind, theirs[f"dweight/{native}"].T).T
        found[key] = deviation(ours[f"dparameters/{key}"], canonical)
    through = _through_the_table(arrays["x"], theirs["dx"])
    found["dx"] = deviation(ours["dparameters/embedding/embedding"], through)
    vocabulary.saw("layer", kind, max(found.values()), f"nn.{TORCH_CLASSES[kind]}")
    assert max(found.values()) <= LIMIT, found
    if kind == "gru":
        swapped = torch_order("lstm", arrays["parameters/l1/kernel"])
        wrong = peers["torch"]("sequence:stock", facts, stock | {"weight/weight_ih_l1": swapped})
        assert deviation(ours["y"], wrong["y"]) > 1e-6


@pytest.mark.parametrize(
    "layer",
    [
        {"kind": "lstm", "direction": "both", "return_sequences": True},
        {"kind": "gru", "reset": "before", "recurrent_dropout": 0.2, "input_dropout": 0.2},
        {"kind": "simple_rnn", "masked": True},
    ],
)
def test_float32_stays_float32(peers: dict[str, Peer], layer: dict[str, Any]) -> None:
    table = {"kind": "embedding", "vocabulary": 4, "features": 3}
    case = Case((table, {"units": 4, **layer}), (5,), vocabulary=4, pad_id=0)
    arrays = {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in case.arrays().items()}
    results = both(peers, "layers:forward_backward", {**case.facts, "precision": "float32"}, arrays)
    assert {value.dtype for result in results for value in result.values()} == {np.dtype(np.float32)}
    assert max(deviations(*results).values()) < 1e-5


# Initial values.


def _parameters(convention: str, kind: str, **layer: Any) -> dict[str, Any]:
    data = {"input_shape": (3, 5), "layers": [{"kind": kind, "units": 64, **layer}]}
    return {p.name: p for p in ModelSpec.parse(data).resolve(convention).tree().children[0].parameters}


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_start_as_either_framework_starts_them(kind: str) -> None:
    """Rows 38, 39: Glorot, orthogonal and a forget bias of 1; or U(+-1/sqrt(units)) for everything."""
    key, width = (1, 2), 64 * GATES[kind]
    keras = {name: initial_value(p, key) for name, p in _parameters("keras", kind).items()}
    assert set(keras) == {"kernel", "recurrent_kernel", "bias"} | ({"recurrent_bias"} & set(keras))
    assert ("recurrent_bias" in keras) == (kind == "gru")
    limit = (6 / (5 + width)) ** 0.5
    assert 0.97 * limit < np.abs(keras["kernel"]).max() <= limit
    rows = keras["recurrent_kernel"]
    assert np.allclose(rows @ rows.T, np.eye(64), atol=1e-12)
    forget = np.repeat([0, 1, 0, 0], 64) if kind == "lstm" else np.zeros(width)
    assert (keras["bias"] == forget).all()
    torch = {name: initial_value(p, key) for name, p in _parameters("torch", kind, direction="both").items()}
    assert len(torch) == 8
    for values in torch.values():
        assert 0.95 / 8 < np.abs(values).max() <= 1 / 8


def test_the_forget_bias_is_given_once() -> None:
    parameters = _parameters("keras", "lstm", biases="two")
    assert parameters["bias"].initializer == "forget_ones"
    assert parameters["recurrent_bias"].initializer == "zeros"


def test_a_vector_has_no_tokens() -> None:
    with pytest.raises(SpecError, match=r"\(tokens, features\), received shape \(3,\)"):
        ModelSpec.parse({"input_shape": (3,), "layers": [{"kind": "lstm", "units": 2}]}).tree()
