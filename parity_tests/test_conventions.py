"""A convention is exact: each framework trains as the other's stock classes do, for 100 steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from parity.common.data import sources
from parity.common.data.plan import BatchPlan
from parity.common.record import RunRecord
from parity.common.spec import TrainSpec
from parity.common.state.canonical import State, parameter_specs
from parity_tests.helpers import matrix
from parity_tests.helpers.run_cache import RunCache
from parity_tests.peers import Arrays, Peer

STEPS, BATCH = 100, 32
# Over 100 steps and every tensor; a single step's rounding grows with the steps.
LIMIT = 1e-11


def act(function: str) -> dict[str, Any]:
    return {"kind": "activation", "function": function}


def dense(units: int) -> dict[str, Any]:
    return {"kind": "dense", "units": units}


# The same models as in peers/*_stock.py; what a framework's default decides is left to the convention.
MODELS: dict[str, list[dict[str, Any]]] = {
    "cnn": [
        {"kind": "conv2d", "filters": 8, "padding": 1},
        act("relu"),
        {"kind": "batch_norm"},
        {"kind": "conv2d", "filters": 8, "strides": 2, "padding": 1},
        act("leaky_relu"),
        {"kind": "average_pool2d", "size": 2},
        {"kind": "flatten"},
        dense(10),
    ],
    "mlp": [{"kind": "flatten"}, dense(16), act("tanh"), {"kind": "layer_norm"}, dense(10)],
    "recurrent": [
        {"kind": "reshape", "shape": [8, 8]},
        {"kind": "lstm", "units": 12, "return_sequences": True},
        {"kind": "gru", "units": 8},
        dense(10),
    ],
}
SAME = {"keras": "same", "torch": 1}
# Keras's default of .3 as TensorFlow's kernel holds it: its slope is an attribute in float32.
SLOPE = {"keras": float(np.float32(0.3)), "torch": None}
# Keras's own defaults, written out so that peers/tensorflow_stock.py can pass them on in float64.
BETAS = {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7}
# model, our optimizer, the stock optimizer of each framework with its options
CASES = [
    (
        "cnn",
        {"kind": "sgd", "learning_rate": 0.05, "momentum": 0.9},
        "SGD",
        {"momentum": 0.9},
        {"momentum": 0.9},
    ),
    ("cnn", {"kind": "adam", "learning_rate": 0.003}, "Adam", BETAS, {}),
    ("mlp", {"kind": "adamw", "learning_rate": 0.003}, "AdamW", {**BETAS, "weight_decay": 0.004}, {}),
    ("mlp", {"kind": "rmsprop", "learning_rate": 0.003}, "RMSprop", {}, {}),
    ("recurrent", {"kind": "adam", "learning_rate": 0.01}, "Adam", BETAS, {}),
]
# Seconds each, and both rules are held against the stock ones step by step in test_optimizers.
MARKS = {
    "recurrent Adam": pytest.mark.slow,
    "cnn SGD": pytest.mark.exhaustive,
    "mlp RMSprop": pytest.mark.exhaustive,
}


def cases() -> list:
    names = [f"{case[0]} {case[2]}" for case in CASES]
    return [
        pytest.param(case, marks=MARKS.get(name, ()), id=name)
        for case, name in zip(CASES, names, strict=True)
    ]


def spec_of(model: str, optimizer: dict[str, Any], convention: str) -> TrainSpec:
    layers = [dict(layer) for layer in MODELS[model]]
    for layer in layers:
        if "padding" in layer:
            layer["padding"] = SAME[convention]
        if layer.get("function") == "leaky_relu":
            layer["negative_slope"] = SLOPE[convention]
    return TrainSpec.parse(
        {
            "name": f"stock_{model}",
            "convention": convention,
            "model": {"input_shape": [8, 8, 1], "layers": layers},
            "data": {"tail": "drop"},
            "optimizer": optimizer,
            "global_batch_size": BATCH,
            "steps": STEPS,
        }
    ).resolved()


def batches(spec: TrainSpec) -> tuple[np.ndarray, np.ndarray]:
    """All inputs and targets, one batch after the other."""
    samples, _ = sources.load(spec.data, spec.master_dtype)
    plan = BatchPlan.of(spec, matrix.torch("single", 1))
    ids = np.concatenate([plan.global_ids(step) for step in range(spec.steps)])
    inputs, targets = samples.rows(ids)
    return inputs, targets


def tensors(state: State) -> dict[str, np.ndarray]:
    """Parameters and buffers by their names without the first word."""
    return {k.partition("/")[2]: v for k, v in state.items() if k.startswith(("parameters/", "buffers/"))}


Measure = Callable[[np.ndarray, np.ndarray], float]


def deviation(ours: np.ndarray, theirs: np.ndarray) -> float:
    assert ours.shape == theirs.shape
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def keras_weights(state: State, spec: TrainSpec) -> list[np.ndarray]:
    """keras.Model.get_weights of a state: our order and our layouts, but for the GRU's two biases in one."""
    ours = tensors(state)
    result = []
    for name in (name.partition("/")[2] for name in parameter_specs(spec)):
        if name == "gru/recurrent_bias":
            result[-1] = np.stack([result[-1], ours[name]])
        else:
            result.append(ours[name])
    return result


def keras_deviation(
    peers: dict[str, Peer],
    record: RunRecord,
    options: dict[str, Any],
    case: Any,
    measure: Measure = deviation,
) -> float:
    model, optimizer, stock, _, _ = case
    spec = record.spec
    begun, ended = (keras_weights(record.state(when), spec) for when in ("initial", "final"))
    inputs, targets = batches(spec)
    arrays: Arrays = {"inputs": inputs, "targets": targets}
    arrays |= {f"weight_{i}": weight for i, weight in enumerate(begun)}
    options = {"learning_rate": optimizer["learning_rate"], **options}
    facts = {"model": model, "optimizer": stock, "options": options, "batch_size": BATCH}
    theirs = peers["tensorflow"]("stock:train", facts, arrays)
    return max(measure(weight, theirs[f"weight_{i}"]) for i, weight in enumerate(ended))


def torch_layout(name: str, value: np.ndarray) -> np.ndarray:
    """A canonical tensor as PyTorch stores it."""
    if value.ndim == 4:
        return value.transpose(3, 2, 0, 1)
    if "gru" in name:  # z, r, h -> r, z, n
        z, r, h = np.split(value, 3, -1)
        value = np.concatenate([r, z, h], -1)
    return value.T if value.ndim == 2 else value


TORCH_NAMES: dict[str, dict[str, str]] = {
    "cnn": {
        "conv2d_1/kernel": "0.weight",
        "conv2d_1/bias": "0.bias",
        "batch_norm/gamma": "2.weight",
        "batch_norm/beta": "2.bias",
        "batch_norm/moving_mean": "2.running_mean",
        "batch_norm/moving_variance": "2.running_var",
        "conv2d_2/kernel": "3.weight",
        "conv2d_2/bias": "3.bias",
        "dense/kernel": "7.weight",
        "dense/bias": "7.bias",
    },
    "mlp": {
        "dense_1/kernel": "1.weight",
        "dense_1/bias": "1.bias",
        "layer_norm/gamma": "3.weight",
        "layer_norm/beta": "3.bias",
        "dense_2/kernel": "4.weight",
        "dense_2/bias": "4.bias",
    },
    "recurrent": {
        **{
            f"{layer}/{ours}": f"{layer}.{theirs}_l0"
            for layer in ("lstm", "gru")
            for ours, theirs in (
                ("kernel", "weight_ih"),
                ("recurrent_kernel", "weight_hh"),
                ("bias", "bias_ih"),
                ("recurrent_bias", "bias_hh"),
            )
        },
        "dense/kernel": "head.weight",
        "dense/bias": "head.bias",
    },
}


def torch_deviation(
    peers: dict[str, Peer],
    record: RunRecord,
    options: dict[str, Any],
    case: Any,
    measure: Measure = deviation,
) -> float:
    model, optimizer, stock, _, _ = case
    begun, ended = tensors(record.state("initial")), tensors(record.state("final"))
    names = TORCH_NAMES[model]
    assert set(names) == set(begun)
    inputs, targets = batches(record.spec)
    arrays: Arrays = {"inputs": inputs.transpose(0, 3, 1, 2), "targets": targets}
    arrays |= {theirs: torch_layout(ours, begun[ours]) for ours, theirs in names.items()}
    options = {"lr": optimizer["learning_rate"], **options}
    facts = {"model": model, "optimizer": stock, "options": options, "batch_size": BATCH}
    theirs = peers["torch"]("stock:train", facts, arrays)
    return max(measure(torch_layout(ours, ended[ours]), theirs[name]) for ours, name in names.items())


@pytest.mark.sweep
@pytest.mark.parametrize("case", cases())
def test_torch_trains_as_stock_keras_does(run_cache: RunCache, peers: dict[str, Peer], case: Any) -> None:
    record = run_cache.record(spec_of(case[0], case[1], "keras"), matrix.torch("ddp", 2))
    assert keras_deviation(peers, record, case[3], case) <= LIMIT


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("case", cases())
def test_tensorflow_trains_as_stock_torch_does(
    run_cache: RunCache, peers: dict[str, Peer], case: Any
) -> None:
    record = run_cache.record(spec_of(case[0], case[1], "torch"), matrix.tensorflow(2))
    assert torch_deviation(peers, record, case[4], case) <= LIMIT


def test_the_other_convention_is_another_training(run_cache: RunCache, peers: dict[str, Peer]) -> None:
    """The negative control: the same weights and batches under the other framework's defaults."""
    case = CASES[2]
    keras_like = run_cache.record(spec_of(case[0], case[1], "torch"), matrix.torch("ddp", 2))
    assert keras_deviation(peers, keras_like, case[3], case) > 1e-6
