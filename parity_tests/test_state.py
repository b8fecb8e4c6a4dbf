"""Canonical state: initial values, names, and files that are whole or absent."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import parity.common.state.canonical
from parity.common.base.errors import RecordError
from parity.common.spec import ParameterSpec
from parity.common.spec.initializers import initial_value
from parity.common.state.canonical import State, initial_state, load_state, save_state
from parity.common.state.zero_gradient import zero_gradient_directions
from parity_tests.helpers.records import one_line, recipe_spec, tiny_spec


def equal_bits(a: State, b: State) -> bool:
    return a.keys() == b.keys() and all(
        a[n].dtype == b[n].dtype and a[n].shape == b[n].shape and a[n].tobytes() == b[n].tobytes() for n in a
    )


def test_names_and_shapes_of_a_small_net() -> None:
    state = initial_state(tiny_spec())
    assert {name: value.shape for name, value in state.items()} == {
        "parameters/dense_1/kernel": (4, 4),
        "parameters/dense_1/bias": (4,),
        "parameters/dense_2/kernel": (4, 3),
        "parameters/dense_2/bias": (3,),
        "slots/momentum_velocity/dense_1/kernel": (4, 4),
        "slots/momentum_velocity/dense_1/bias": (4,),
        "slots/momentum_velocity/dense_2/kernel": (4, 3),
        "slots/momentum_velocity/dense_2/bias": (3,),
        "step": (),
    }
    assert state["step"] == 0 and state["step"].dtype == np.int64
    assert all(not value.any() for name, value in state.items() if name.startswith("slots/"))


def test_buffers_have_no_slots_and_layouts_are_canonical() -> None:
    state = initial_state(recipe_spec("digits_cnn"))
    assert state["parameters/conv2d_2/kernel"].shape == (3, 3, 32, 64)  # HWIO
    assert state["parameters/dense/kernel"].shape == (4 * 4 * 64, 10)  # (in, out)
    assert state["buffers/batch_norm_1/moving_variance"].tolist() == [1.0] * 32
    assert state["buffers/batch_norm_1/moving_mean"].tolist() == [0.0] * 32
    assert not [name for name in state if name.startswith("slots/") and "moving" in name]


@pytest.mark.parametrize(
    ("convention", "optimizer", "slots"),
    [
        ("keras", "{kind: sgd, learning_rate: 1}", set()),
        ("torch", "{kind: sgd, learning_rate: 1, momentum: 0.5}", {"momentum_buffer"}),
        ("keras", "{kind: adamw, learning_rate: 1}", {"first_moment", "second_moment"}),
    ],
)
def test_slots_follow_the_optimizer(convention: str, optimizer: str, slots: set[str]) -> None:
    state = initial_state(tiny_spec(f"convention={convention}", f"optimizer={optimizer}"))
    assert {name.split("/")[1] for name in state if name.startswith("slots/")} == slots


@pytest.mark.parametrize("recipe", ["digits_cnn", "digits_transformer", "bert_base:tiny", "gru_tagger:tiny"])
def test_initial_bits_depend_on_seed_and_names_alone(recipe: str) -> None:
    state = initial_state(recipe_spec(recipe))
    assert equal_bits(state, initial_state(recipe_spec(recipe)))
    # Neither how long nor on how much data it is trained.
    other = recipe_spec(recipe, "steps=7", "global_batch_size=3", "data.shuffle=false", "name=other")
    assert equal_bits(state, initial_state(other))
    assert not equal_bits(state, initial_state(recipe_spec(recipe, "seed=1")))


def test_a_layer_keeps_its_values_whatever_comes_after_it() -> None:
    short, long = initial_state(tiny_spec()), initial_state(tiny_spec("model.layers.2.units=9"))
    assert np.array_equal(short["parameters/dense_1/kernel"], long["parameters/dense_1/kernel"])
    kernels = [short[f"parameters/dense_{n}/kernel"].ravel()[:12] for n in (1, 2)]
    assert not np.isin(kernels[0], kernels[1]).any(), "two tensors share their random numbers"


@pytest.mark.parametrize("recipe", ["digits_cnn", "digits_transformer", "bert_base:tiny", "gru_tagger:tiny"])
def test_float32_values_are_the_rounded_float64_ones(recipe: str) -> None:
    wide, narrow = (initial_state(recipe_spec(recipe, f"precision={p}")) for p in ("float64", "float32"))
    assert wide.keys() == narrow.keys()
    for name, value in wide.items():
        if name == "step":
            continue
        assert value.dtype == np.float64 and narrow[name].dtype == np.float32
        assert narrow[name].tobytes() == value.astype(np.float32).tobytes()
    assert any((narrow[name] != wide[name]).any() for name in wide)


@pytest.mark.parametrize(
    ("initializer", "bound"),
    [
        ("glorot_uniform", math.sqrt(6 / (40 + 60))),  # Glorot and Bengio 2010, equation 16
        ("uniform_fan_in", 1 / math.sqrt(40)),
        ("uniform_0.05", 0.05),
    ],
)
def test_uniform_initializers_fill_their_bounds(initializer: str, bound: float) -> None:
    parameter = ParameterSpec("kernel", (40, 60), initializer, fan_in=40, fan_out=60)  # type: ignore[arg-type]
    values = initial_value(parameter, (1, 2))
    assert np.abs(values).max() <= bound
    assert values.max() > 0.99 * bound and values.min() < -0.99 * bound
    assert abs(values.mean()) < 5 * bound / math.sqrt(3 * values.size)
    # The variance of U(-a, a) is a^2 / 3, that of its estimate (4/45) a^4 / n.
    assert abs(values.var() - bound**2 / 3) < 5 * bound**2 * math.sqrt(4 / 45 / values.size)


@pytest.mark.parametrize(("initializer", "deviation"), [("normal_0.02", 0.02), ("normal_1", 1.0)])
def test_normal_initializers_have_their_deviation(initializer: str, deviation: float) -> None:
    values = initial_value(ParameterSpec("kernel", (50, 50), initializer), (3, 4))  # type: ignore[arg-type]
    assert values.std() == pytest.approx(deviation, rel=5 / math.sqrt(2 * 2500))
    assert abs(values.mean()) < 5 * deviation / 50


def test_constant_initializers() -> None:
    for initializer, value in (("zeros", 0.0), ("ones", 1.0)):
        values = initial_value(ParameterSpec("x", (2, 3), initializer), (0, 0))  # type: ignore[arg-type]
        assert values.tolist() == [[value] * 3] * 2


def test_convolution_fans_count_the_window() -> None:
    kernel = initial_state(recipe_spec("digits_cnn"))["parameters/conv2d_2/kernel"]
    bound = math.sqrt(6 / (9 * 32 + 9 * 64))  # receptive field times channels
    assert 0.99 * bound < np.abs(kernel).max() <= bound


def test_null_directions_are_the_key_biases() -> None:
    ledger = zero_gradient_directions(recipe_spec("digits_transformer"))
    assert set(ledger) == {f"block_{n}/attend/self_attention/key_bias" for n in (1, 2)}
    assert (
        zero_gradient_directions(recipe_spec("digits_mlp"))
        == zero_gradient_directions(recipe_spec("digits_cnn"))
        == {}
    )


def test_a_shift_is_a_null_direction_where_a_norm_subtracts_it() -> None:
    dense, norm = "{kind: dense, units: 3}", "{kind: batch_norm}"
    plain = "{kind: dense, units: 3, use_bias: false}"
    for layers, expected in (
        ([dense, norm], {"dense/bias", "batch_norm/moving_mean"}),
        ([norm, dense], set()),
        ([dense, "{kind: activation, function: tanh}", norm], set()),
        ([dense, "{kind: layer_norm}"], set()),
        (["{kind: dense, units: 3, use_bias: false}", norm], set()),
        # A norm's beta before another norm, with nothing but a linear layer between them.
        ([norm, plain, norm], {"batch_norm_1/beta", "batch_norm_2/moving_mean"}),
        (
            [f"{{kind: residual, layers: [{norm}]}}", norm],
            {"residual/batch_norm/beta", "batch_norm/moving_mean"},
        ),
        ([f"{{kind: residual, drop_rate: 0.5, layers: [{norm}]}}", norm], set()),
        (
            [f"{{kind: add, layers: [{plain}, {dense}]}}", norm],
            {"add/dense_2/bias", "batch_norm/moving_mean"},
        ),
        (
            [dense, norm, dense, norm, dense],
            {
                "dense_1/bias",
                "dense_2/bias",
                "batch_norm_1/beta",
                *(f"batch_norm_{n}/moving_mean" for n in (1, 2)),
            },
        ),
    ):
        spec = tiny_spec(f"model.layers=[{', '.join(layers)}]")
        assert set(zero_gradient_directions(spec)) == expected, layers


SAMPLE: State = {
    "parameters/a": np.array([[1.5, -0.0], [math.nan, math.inf]]),
    "parameters/b": np.float32([0.1, 1e-45]),
    "empty": np.zeros((0, 3)),
    "step": np.array(2**40, np.int64),
}


MAPPED = pytest.mark.parametrize("mapped", [False, True], ids=["loaded", "mapped"])


@MAPPED
def test_files_keep_every_bit(tmp_path: Path, mapped: bool) -> None:
    whole = {**SAMPLE, "flags": np.array([True, False]), "half": np.float16([1, 2, 3])}
    save_state(tmp_path / "x.safetensors", whole)
    assert equal_bits(load_state(tmp_path / "x.safetensors", mapped), whole)
    assert not equal_bits(SAMPLE, {**SAMPLE, "parameters/b": np.float32([0.1, 0.0])})
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]


def test_a_transposed_view_is_saved_as_it_reads(tmp_path: Path) -> None:
    value = np.arange(6.0).reshape(2, 3).T
    save_state(tmp_path / "x.safetensors", {"v": value})
    assert np.array_equal(load_state(tmp_path / "x.safetensors")["v"], value)


@pytest.mark.parametrize("moment", ["while writing", "before it is in place"])
def test_a_failed_save_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    path = tmp_path / "x.safetensors"
    save_state(path, SAMPLE)

    def half(tensors: object, target: Path) -> None:
        target.write_bytes(b"half")
        raise OSError("disk full")

    def no_replace(source: Path, target: Path) -> None:
        raise OSError("disk full")

    if moment == "while writing":
        monkeypatch.setattr(parity.common.state.canonical, "save_file", half)
    else:
        monkeypatch.setattr(os, "replace", no_replace)
    with pytest.raises(OSError, match="disk full"):
        save_state(path, {"other": np.ones(3)})
    assert equal_bits(load_state(path), SAMPLE)


def of_type(name: str) -> bytes:
    header = json.dumps(
        {"x": {"dtype": name, "shape": [2], "data_offsets": [0, 4 if name == "BF16" else 2]}}
    ).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4 if name == "BF16" else 2)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut in the header": lambda data: data[:20],
    "cut in the data": lambda data: data[:-1],
    "longer than it says": lambda data: data + b"\0",
    "text": lambda data: b"these are my notes\n" * 10,
    "pickle": lambda data: b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x07builtins\x94.",
    "huge header": lambda data: struct.pack("<Q", 2**62) + data[8:],
    "type that NumPy lacks": lambda data: of_type("BF16"),
    "another one": lambda data: of_type("F8_E4M3"),
}


@MAPPED
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_or_foreign_file_is_named_in_one_line(tmp_path: Path, damage: str, mapped: bool) -> None:
    path = tmp_path / "x.safetensors"
    save_state(path, SAMPLE)
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    with pytest.raises(RecordError) as error:
        load_state(path, mapped)
    assert str(path) in one_line(error.value)


def test_a_missing_file_and_a_folder_are_named_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="missing; the run may not have finished") as error:
        load_state(tmp_path / "x.safetensors")
    one_line(error.value)
    with pytest.raises(RecordError) as error:
        load_state(tmp_path)
    assert str(tmp_path) in one_line(error.value)
