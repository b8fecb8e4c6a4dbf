"""Specs whose model is imported: those of `external_models`, with their tensors and pairs written out."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from parity.common.base.rng import derive_key, normal
from parity.common.spec import TrainSpec
from parity.common.state.canonical import save_state

KERAS, TORCH = "parity_tests.external_models.keras_nets", "parity_tests.external_models.torch_nets"
# Keras name, Keras shape, torch name, torch shape, rule.
Row = tuple[str, tuple[int, ...], str, tuple[int, ...], str]
NULL = "softmax is the same for logits that a constant is added to"
BUFFERS = ("moving_mean", "moving_variance")


def dense(name: str, inputs: int, units: int, rule: str = "transpose") -> list[Row]:
    """The rows of a dense layer that is called the same on both sides."""
    return [
        (f"{name}/kernel", (inputs, units), f"{name}.weight", (units, inputs), rule),
        (f"{name}/bias", (units,), f"{name}.bias", (units,), "same"),
    ]


def conv(name: str, size: int, inputs: int, filters: int, bias: bool = True) -> list[Row]:
    rows: list[Row] = [
        (
            f"{name}/kernel",
            (size, size, inputs, filters),
            f"{name}.weight",
            (filters, inputs, size, size),
            "conv",
        )
    ]
    return rows + ([(f"{name}/bias", (filters,), f"{name}.bias", (filters,), "same")] if bias else [])


def norm(name: str, channels: int) -> list[Row]:
    ours = ("gamma", "beta", *BUFFERS)
    theirs = ("weight", "bias", "running_mean", "running_var")
    shape = (channels,)
    return [(f"{name}/{k}", shape, f"{name}.{t}", shape, "same") for k, t in zip(ours, theirs, strict=True)]


ROWS: dict[str, list[Row]] = {
    "mlp": [*dense("first", 6, 8), *dense("second", 8, 8), *dense("last", 8, 3)],
    "cnn": [*conv("conv", 3, 2, 4, bias=False), *norm("norm", 4), *dense("head", 36, 3, "flatten(3,3,4)")],
    "masks": [*conv("conv", 3, 2, 4), *conv("classes", 1, 4, 3)],
    "unused": [*dense("first", 6, 5), *dense("spare", 5, 4), *dense("last", 5, 3)],
    "dropped": [*dense("first", 6, 8), *dense("last", 4, 3)],
    "one": dense("last", 6, 3),
}


def data(shape: tuple[int, ...], **fields: Any) -> dict[str, Any]:
    source = {"kind": "synthetic", "shape": list(shape), "target": "classes", "classes": 3, **fields}
    return {"source": source, "train_samples": 48, "eval_samples": 13}


def tensors(rows: list[Row], side: int) -> list[dict[str, Any]]:
    return [
        {
            "name": row[2 * side],
            "shape": row[2 * side + 1],
            "trainable": not row[0].endswith(BUFFERS),
            "buffer": row[0].endswith(BUFFERS),
        }
        for row in rows
    ]


def weights(folder: Path, named: dict[str, tuple[int, ...]]) -> dict[str, str]:
    """A weights file of some tensors: the fields of a spec that name it."""
    state = {}
    for name, shape in named.items():
        value = 0.3 * normal(derive_key(0, "test", name), shape)
        state[name] = np.abs(value) + 0.5 if name.endswith(("gamma", "variance")) else value
    digest = hashlib.sha256(repr(sorted(named.items())).encode()).hexdigest()[:8]
    path = folder / f"weights_{digest}.safetensors"
    save_state(path, state)
    return {"weights": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def layer(folder: Path, rows: list[Row], keras: str, torch: str, output: list[int], **fields: Any) -> dict:
    """An imported layer of pairs of one tensor each."""
    return {
        "kind": "imported",
        "keras": f"{KERAS}:{keras}",
        "torch": f"{TORCH}:{torch}",
        "keras_tensors": tensors(rows, 0),
        "torch_tensors": tensors(rows, 1),
        "mapping": [{"keras": [row[0]], "torch": [row[2]], "rule": row[4]} for row in rows],
        "output": output,
        **weights(folder, {row[0]: row[1] for row in rows}),
        **fields,
    }


def spec(imported: dict[str, Any], shape: tuple[int, ...], **fields: Any) -> TrainSpec:
    """A short training of an imported layer."""
    return TrainSpec.parse(
        {
            "name": "imported",
            "model": {"input_shape": list(shape), "layers": [imported]},
            "data": data(shape),
            "optimizer": {"kind": "sgd", "learning_rate": 0.1, "momentum": 0.9},
            "global_batch_size": 8,
            "steps": 20,
            "precision": "float64",
            **fields,
        }
    )


def mlp(folder: Path, **fields: Any) -> TrainSpec:
    return spec(layer(folder, ROWS["mlp"], "mlp", "MLP", [3]), (6,), **fields)


def cnn(
    folder: Path, torch: str = "CNN", arguments: dict[str, Any] | None = None, **fields: Any
) -> TrainSpec:
    own = {"torch_layout": "channels_first", "statistics": "per_replica", "torch_arguments": arguments or {}}
    return spec(layer(folder, ROWS["cnn"], "cnn", torch, [3], **own), (6, 6, 2), **fields)


def masks(folder: Path, **fields: Any) -> TrainSpec:
    imported = layer(folder, ROWS["masks"], "masks", "Masks", [4, 4, 3], torch_layout="channels_first")
    return spec(imported, (4, 4, 2), data=data((4, 4, 2), target="masks"), **fields)


def add_lstm(folder: Path, imported: dict[str, Any], units: int, frozen: bool) -> None:
    """Add the tensors of an LSTM of as many inputs as units, and write the weights file anew.

    frozen: torch's second bias, which Keras does not have.
    """
    gates, keras, torch = 4 * units, "lstm/lstm_cell", ("ih_l0", "hh_l0")
    for kind, short in zip(("kernel", "recurrent_kernel"), torch, strict=True):
        imported["keras_tensors"].append({"name": f"{keras}/{kind}", "shape": (units, gates)})
        imported["torch_tensors"].append({"name": f"lstm.weight_{short}", "shape": (gates, units)})
        pair = {"keras": [f"{keras}/{kind}"], "torch": [f"lstm.weight_{short}"], "rule": "transpose"}
        imported["mapping"].append(pair)
    imported["keras_tensors"].append({"name": f"{keras}/bias", "shape": (gates,)})
    imported["torch_tensors"] += [
        {"name": f"lstm.bias_{short}", "shape": (gates,), "trainable": not (frozen and short == "hh_l0")}
        for short in torch
    ]
    biases = [f"lstm.bias_{short}" for short in torch]
    imported["mapping"].append({"keras": [f"{keras}/bias"], "torch": biases, "rule": "two_biases"})
    imported |= weights(folder, {t["name"]: tuple(t["shape"]) for t in imported["keras_tensors"]})


def dropped(folder: Path, **fields: Any) -> TrainSpec:
    """Its rates of dropout are turned off."""
    imported = layer(
        folder, ROWS["dropped"], "dropped", "Dropped", [3], stochastic="off", constants="exact_from_build"
    )
    add_lstm(folder, imported, 4, frozen=True)
    return spec(imported, (6,), **fields)


def text(folder: Path, frozen: bool = True, **fields: Any) -> TrainSpec:
    """frozen: torch's second bias of the LSTM, which Keras does not have."""
    rows: list[Row] = [
        ("embed/embeddings", (12, 8), "embed.weight", (12, 8), "same"),
        ("attend/attention_output/kernel", (2, 4, 8), "attend.out_proj.weight", (8, 8), "heads_out(2)"),
        ("attend/attention_output/bias", (8,), "attend.out_proj.bias", (8,), "same"),
        *dense("head", 8, 3),
    ]
    imported = layer(folder, rows, "Text", "Text", [3])
    parts = ("query", "key", "value")
    for kind, shape, joined, rule in (
        ("kernel", (8, 2, 4), (24, 8), "n d h k -> (n h k) d; h=2"),
        ("bias", (2, 4), (24,), "n h k -> (n h k); h=2"),
    ):
        names = [f"attend/{part}/{kind}" for part in parts]
        fused = "attend.in_proj_" + {"kernel": "weight"}.get(kind, kind)
        imported["keras_tensors"] += [
            {"name": name, "shape": shape, "null_direction": NULL if name == "attend/key/bias" else None}
            for name in names
        ]
        imported["torch_tensors"].append({"name": fused, "shape": joined})
        imported["mapping"].append({"keras": names, "torch": [fused], "rule": rule})
    add_lstm(folder, imported, 8, frozen)
    given = {"data": data((5,), vocabulary=12), **fields}
    model = {"input_shape": [5], "inputs": "tokens", "layers": [imported]}
    return spec(imported, (5,), **given, model=model)
