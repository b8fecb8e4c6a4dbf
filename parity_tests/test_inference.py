"""Trained models loaded to be called, and exported: in either framework, whoever trained them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.common import recipes
from parity.common.base import rng
from parity.common.checkpoint import checkpoints_of
from parity.common.data import sources
from parity.common.record.files import write_json
from parity.common.record.header import header_of
from parity.common.spec import Placement, TrainSpec, override
from parity.common.state.canonical import initial_state, load_state, parameter_specs, save_state
from parity_tests.helpers.matrix import NARROW, config, tensorflow, torch
from parity_tests.helpers.records import FACTS, one_line
from parity_tests.helpers.run_cache import RunCache
from parity_tests.peers import Peer, PeerError

Peers = dict[str, Peer]

SAVE = {"every_steps": 4}
EMA = "optimizer.ema={decay: 0.5}"
RUNS: dict[str, tuple[str, list[str], Placement]] = {
    "mlp with averaged weights": ("digits_mlp", [EMA], config(tensorflow(2), save=SAVE)),
    "cnn with batch norm": ("digits_cnn", NARROW, config(torch("fsdp2", 2), save=SAVE)),
    "transformer": ("digits_transformer", [], config(torch("ddp", 2), save=SAVE)),
    "lstm with padding": ("lstm_classifier:tiny", [], config(tensorflow(1), save=SAVE)),
}


def spec_of(recipe: str, *assignments: str) -> TrainSpec:
    return override(recipes.get(recipe), ["precision=float64", "steps=6", *assignments]).resolved()


def evaluation(spec: TrainSpec) -> dict[str, np.ndarray]:
    """The evaluation samples."""
    samples = sources.load_for(spec)[1]
    inputs, targets = samples.rows(samples.first_id + np.arange(len(samples)))
    return {"inputs": inputs, "targets": targets}


def both(peers: Peers, path: Path, arrays: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    found = [peer.begin("inference:evaluate", {"path": str(path)}, arrays) for peer in peers.values()]
    return [future.result() for future in found]


def refused(peers: Peers, path: Path, framework: str = "torch", **facts: str) -> str:
    """The one line that loading ends with."""
    found = peers[framework]("inference:refusal", {"path": str(path), **facts}, {})
    return one_line(bytes(found["said"]).decode() + "\n")


@pytest.fixture(scope="session")
def run(run_cache: RunCache) -> Any:
    """A finished run with a checkpoint before its fifth step, by its name in RUNS; a copy, to be damaged."""

    def made(name: str, copy: Path | None = None) -> Path:
        recipe, assignments, placement = RUNS[name]
        folder = run_cache.begin(spec_of(recipe, *assignments), placement).result()
        return folder if copy is None else shutil.copytree(folder, copy / "run")

    return made


RARELY = ("lstm with padding",)  # some seconds, which are most of them TensorFlow's graph


@pytest.mark.sweep
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in RARELY)) for name in RUNS]
)
def test_both_frameworks_give_what_the_run_evaluated(
    name: str, run: Any, run_cache: RunCache, peers: Peers
) -> None:
    recipe, assignments, placement = RUNS[name]
    spec = spec_of(recipe, *assignments)
    folder, summary = run(name), run_cache.record(spec, placement).summary
    found = both(peers, folder, evaluation(spec))
    np.testing.assert_allclose(found[0]["outputs"], found[1]["outputs"], rtol=1e-12, atol=1e-13)
    for each in found:
        assert summary is not None and each["step"] == 6
        assert each["sum"] == pytest.approx(summary.eval_loss_sum, rel=1e-12)
        assert (each["count"], each["correct"]) == (summary.eval_count, summary.eval_correct)


def test_an_earlier_checkpoint_is_another_model(run: Any, peers: Peers) -> None:
    name = "cnn with batch norm"
    folder, arrays = run(name), evaluation(spec_of(RUNS[name][0], *RUNS[name][1]))
    (checkpoint,) = checkpoints_of(folder)
    earlier, last = both(peers, checkpoint, arrays), both(peers, folder, arrays)
    np.testing.assert_allclose(earlier[0]["outputs"], earlier[1]["outputs"], rtol=1e-12, atol=1e-13)
    assert earlier[0]["step"] == earlier[1]["step"] == 4
    assert abs(earlier[0]["outputs"] - last[0]["outputs"]).max() > 1e-3


def test_weights_that_are_not_averaged_are_another_model(run: Any, peers: Peers, tmp_path: Path) -> None:
    name = "mlp with averaged weights"
    spec = spec_of(RUNS[name][0], EMA)
    folder = run(name, tmp_path)
    averaged = both(peers, folder, evaluation(spec))[0]["outputs"]
    path = folder / "final.safetensors"
    state = load_state(path)
    for key in [key for key in state if key.startswith("slots/average/")]:
        state[key] = state[key.replace("slots/average", "parameters")]
    save_state(path, state)
    raw = both(peers, folder, evaluation(spec))
    np.testing.assert_allclose(raw[0]["outputs"], raw[1]["outputs"], rtol=1e-12, atol=1e-13)
    assert abs(averaged - raw[0]["outputs"]).max() > 1e-3


def test_a_run_that_did_not_finish_gives_its_latest_whole_checkpoint(
    run: Any, peers: Peers, tmp_path: Path
) -> None:
    folder = run("transformer", tmp_path)
    (folder / "final.safetensors").unlink()
    arrays = evaluation(spec_of("digits_transformer"))
    assert [each["step"] for each in both(peers, folder, arrays)] == [4, 4]
    (checkpoint,) = checkpoints_of(folder)
    content = bytearray((checkpoint / "state.safetensors").read_bytes())
    content[-1] ^= 1
    (checkpoint / "state.safetensors").write_bytes(content)
    for framework in peers:
        assert "SHA-256" in refused(peers, folder, framework)


def test_what_cannot_be_loaded_is_refused_in_a_line(run: Any, peers: Peers, tmp_path: Path) -> None:
    for framework in peers:
        assert "no checkpoint" in refused(peers, tmp_path / "nothing", framework)
    folder = run("cnn with batch norm", tmp_path)
    state = load_state(folder / "final.safetensors")
    save_state(
        folder / "final.safetensors",
        {k: v for k, v in state.items() if k != "buffers/batch_norm_2/moving_mean"},
    )
    assert "lacks buffers/batch_norm_2/moving_mean" in refused(peers, folder)
    save_state(folder / "final.safetensors", state | {"parameters/dense/bias": np.zeros(9)})
    assert "parameters/dense/bias is float64 of shape (9,)" in refused(peers, folder)
    (folder / "final.safetensors").write_bytes(b"cut short")
    assert "not a whole safetensors file" in refused(peers, folder)


def test_keras_predicts_with_it_but_does_not_save_it(run: Any, peers: Peers) -> None:
    folder, arrays = run("transformer"), evaluation(spec_of("digits_transformer"))
    found = peers["tensorflow"]("inference:evaluate", {"path": str(folder), "predict": True}, arrays)
    # Keras hands a model what it is to predict in float32.
    np.testing.assert_allclose(found["predicted"], found["outputs"], atol=1e-5)
    for method in ("save", "save_weights"):
        assert "parity checkpoint export" in refused(peers, folder, "tensorflow", save=method)


def test_an_empty_batch_has_empty_outputs(run: Any, peers: Peers) -> None:
    arrays = evaluation(spec_of("digits_cnn", *NARROW))
    empty = {name: values[:0] for name, values in arrays.items()}
    for each in both(peers, run("cnn with batch norm"), empty):
        assert each["outputs"].shape == (0, 10)


def single(
    layers: list[dict[str, Any]], shape: list[int], convention: str = "torch", **model: Any
) -> TrainSpec:
    """A model of few layers, in float64."""
    return TrainSpec.parse(
        {
            "name": "single",
            "model": {"input_shape": shape, "layers": layers, **model},
            "optimizer": {"kind": "sgd", "learning_rate": 0.1},
            "loss": {"kind": "mean_squared_error"},
            "convention": convention,
            "precision": "float64",
            "global_batch_size": 4,
            "steps": 1,
        }
    ).resolved()


def tensors(spec: TrainSpec) -> dict[str, np.ndarray]:
    """Tensors of which no two elements are alike; scales and variances are near one."""
    state, found = initial_state(spec), {}
    for name, parameter in parameter_specs(spec).items():
        noise = 0.1 * rng.normal(rng.derive_key(1, name), parameter.shape)
        found[name] = (state[name] + noise).astype(spec.master_dtype)
    return found


def made(folder: Path, spec: TrainSpec) -> Path:
    """A run that ended with these tensors, as far as loading looks."""
    folder.mkdir()
    save_state(folder / "final.safetensors", {**tensors(spec), "step": np.array(3, np.int64)})
    write_json(folder / "header.json", header_of(spec, torch("single", 1), FACTS).to_dict())
    return folder


def batch(spec: TrainSpec) -> np.ndarray:
    key = rng.derive_key(2, "inputs")
    if spec.model.inputs == "tokens":
        return (7 * rng.uniform(key, (3, *spec.model.input_shape))).astype(np.int64)
    return rng.normal(key, (3, *spec.model.input_shape))


CNN = [
    {"kind": "conv2d", "filters": 4, "strides": 2},
    {"kind": "batch_norm"},
    {"kind": "activation", "function": "relu"},
    {"kind": "max_pool2d"},
    {"kind": "flatten"},
    {"kind": "dense", "units": 5},
]
STOCK_CNN = [
    ("conv2d", "Conv2d", {"in_channels": 2, "out_channels": 4, "kernel_size": 3, "stride": 2, "padding": 1}),
    ("batch_norm", "BatchNorm2d", {"num_features": 4}),
    ("activation", "ReLU", {}),
    ("max_pool2d", "MaxPool2d", {"kernel_size": 2}),
    ("flatten", "Flatten", {}),
    ("dense", "Linear", {"in_features": 16, "out_features": 5}),
]
SEQUENCE, IMAGE = [5, 6], [8, 8, 2]
RECURRENT = {"input_size": 6, "hidden_size": 4}
# Layers; input; stock modules of PyTorch that load the file; where their channels come first.
STOCK: dict[str, tuple[list[dict[str, Any]], list[int], list[tuple[str, str, dict[str, Any]]], str]] = {
    "cnn": (CNN, IMAGE, STOCK_CNN, "input"),
    "depthwise": (
        [{"kind": "depthwise_conv2d", "depth_multiplier": 2}],
        IMAGE,
        [("depthwise_conv2d", "Conv2d", {"in_channels": 2, "out_channels": 4, "kernel_size": 3, "padding": 1, "groups": 2})],
        "both",
    ),
    "transposed": (
        [{"kind": "conv2d_transpose", "filters": 3, "kernel_size": 3, "strides": 2, "padding": 1}],
        IMAGE,
        [("conv2d_transpose", "ConvTranspose2d", {"in_channels": 2, "out_channels": 3, "kernel_size": 3, "stride": 2, "padding": 1})],
        "both",
    ),
    "group norm without scale": (
        [{"kind": "group_norm", "groups": 2, "scale": False}],
        [*IMAGE[:2], 4],
        [("group_norm", "GroupNorm", {"num_groups": 2, "num_channels": 4})],
        "both",
    ),
    "prelu": (
        [{"kind": "prelu", "slope_per": "channel"}],
        IMAGE,
        [("prelu", "PReLU", {"num_parameters": 2})],
        "both",
    ),
    "attention": (
        [{"kind": "layer_norm"}, {"kind": "self_attention", "heads": 2}],
        SEQUENCE,
        [
            ("layer_norm", "LayerNorm", {"normalized_shape": 6}),
            ("self_attention", "MultiheadAttention", {"embed_dim": 6, "num_heads": 2}),
        ],
        "none",
    ),
    "lstm both ways": (
        [{"kind": "lstm", "units": 4, "direction": "both", "return_sequences": True}],
        SEQUENCE,
        [("lstm", "LSTM", {**RECURRENT, "bidirectional": True})],
        "none",
    ),
    "gru": ([{"kind": "gru", "units": 4, "return_sequences": True}], SEQUENCE, [("gru", "GRU", RECURRENT)], "none"),
    "rnn with one bias": (
        [{"kind": "simple_rnn", "units": 4, "biases": "one", "return_sequences": True}],
        SEQUENCE,
        [("simple_rnn", "RNN", RECURRENT)],
        "none",
    ),
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("name", STOCK)
@pytest.mark.parametrize("file", ["state_dict", "safetensors", "dcp"])
def test_stock_modules_load_what_is_exported(name: str, file: str, peers: Peers, tmp_path: Path) -> None:
    layers, shape, modules, channels = STOCK[name]
    spec = single(layers, shape)
    facts = {
        "path": str(made(tmp_path / "run", spec)),
        "format": file,
        "modules": modules,
        "channels": channels,
    }
    found = peers["torch"]("inference:stock", facts, {"inputs": batch(spec)})
    np.testing.assert_allclose(found["stock"], found["ours"], rtol=1e-12, atol=1e-13)


def test_a_stock_module_that_differs_is_seen(peers: Peers, tmp_path: Path) -> None:
    layers, shape, modules, channels = STOCK["cnn"]
    spec = single(layers, shape)
    other = [(n, k, {**o, "eps": 1e-3} if k == "BatchNorm2d" else o) for n, k, o in modules]
    path = str(made(tmp_path / "run", spec))
    facts = {"path": path, "format": "state_dict", "modules": other, "channels": channels}
    found = peers["torch"]("inference:stock", facts, {"inputs": batch(spec)})
    assert abs(found["stock"] - found["ours"]).max() > 1e-5


def exported(
    peers: Peers, spec: TrainSpec, folder: Path, **facts: Any
) -> tuple[str, float | None, list[str]]:
    """(what was said, deviation after loading plainly, files left) of an export to Keras."""
    out = folder / "out"
    out.mkdir()
    facts |= {"path": str(made(folder / "run", spec)), "out": str(out / "model.keras")}
    found = peers["tensorflow"]("inference:stock", facts, {"inputs": batch(spec)})
    deviation = float(found["deviation"]) if "deviation" in found else None
    return bytes(found["said"]).decode(), deviation, [path.name for path in out.iterdir()]


TOKENS = {"inputs": "tokens", "pad_id": 0}
KERAS: dict[str, TrainSpec] = {
    "cnn": single(CNN, IMAGE),
    "cnn of keras": single(CNN, IMAGE, "keras"),
    "poolings": single(
        [
            {"kind": "average_pool2d", "padding": 1},
            {"kind": "zero_pad2d"},
            {"kind": "max_pool2d", "padding": 1},
            {"kind": "conv2d_transpose", "filters": 3, "strides": 2, "padding": 1},
            {"kind": "prelu", "slope_per": "layer"},
            {"kind": "activation", "function": "leaky_relu"},
            {"kind": "resize", "height": 5, "width": 7, "interpolation": "bilinear"},
        ],
        IMAGE,
    ),
    "tokens": single(
        [
            {"kind": "embedding", "vocabulary": 9, "features": 6},
            {"kind": "position_embedding", "positions": 5},
            {"kind": "self_attention", "heads": 3, "key_value_heads": 1, "head_size": 4, "masked": True},
            {"kind": "lstm", "units": 4, "direction": "both", "masked": True, "return_sequences": True},
            {"kind": "gru", "units": 3, "direction": "backward"},
            {"kind": "activation", "function": "gelu"},
        ],
        [5],
        **TOKENS,
    ),
}


@pytest.mark.parametrize("name", KERAS)
def test_plain_keras_loads_what_is_exported(name: str, peers: Peers, tmp_path: Path) -> None:
    said, deviation, files = exported(peers, KERAS[name], tmp_path)
    assert deviation is not None and deviation < 1e-13 and files == ["model.keras"], said
    assert "loaded again, outputs within" in said


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "recipe", [name for name in recipes.names() if name.endswith(":tiny") or name.startswith("digits")]
)
def test_every_recipe_can_be_exported(recipe: str, peers: Peers, tmp_path: Path) -> None:
    attends = recipe.startswith(("digits_transformer", "vit", "gpt2", "bert"))
    for precision, most in (("float64", 1e-7 if attends else 1e-13), ("bfloat16_mixed", 1e-4)):
        folder = tmp_path / precision
        folder.mkdir()
        said, deviation, files = exported(peers, spec_of(recipe, f"precision={precision}"), folder)
        assert files == ["model.keras"], said
        if precision == "float64":
            assert deviation is not None and deviation < most
        else:
            assert "computes in float32, not bfloat16_mixed" in said


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        ({"kind": "self_attention", "heads": 1, "rotary": "half"}, "self_attention (self_attention)"),
        ({"kind": "self_attention", "heads": 1, "output_bias": False}, "self_attention (self_attention)"),
    ],
)
def test_a_layer_that_keras_has_not_is_named(
    layer: dict[str, Any], named: str, peers: Peers, tmp_path: Path
) -> None:
    spec = single([{"kind": "dense", "units": 4}, layer], SEQUENCE)
    said, deviation, files = exported(peers, spec, tmp_path)
    assert f"layer {named}: Keras has no stock layer with the same mathematics" in one_line(said + "\n")
    assert (deviation, files) == (None, [])


def test_a_mistake_in_a_builder_is_not_a_layer_that_keras_has_not(peers: Peers, tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="TypeError: a builder's own"):
        exported(peers, KERAS["cnn"], tmp_path, mistaken=True)


def test_a_stock_model_that_computes_something_else_is_not_written(peers: Peers, tmp_path: Path) -> None:
    said, deviation, files = exported(peers, KERAS["cnn"], tmp_path, spoil=1e-6)
    assert "off; not written" in one_line(said + "\n")
    assert (deviation, files) == (None, [])
