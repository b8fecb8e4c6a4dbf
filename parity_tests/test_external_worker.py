"""Users' models in processes of their own: passes with taps and feeding, updates, experiments, hostile code."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.pass_result import PassResult
from parity.common.external.process.worker import ExternalWorker
from parity.common.spec.external.target import Target
from parity.common.spec.losses import parse_loss
from parity_tests.helpers import ROOT

MODELS = Path(__file__).parent / "external_models"
BOTH = ("tensorflow", "torch")
LIMIT = 1e-13
CLASSES = parse_loss({})
NUMBERS = parse_loss({"kind": "mean_squared_error"})


@pytest.fixture(scope="module")
def sides() -> Iterator[dict[str, ExternalWorker]]:
    """One process of each framework; tests have them hold what they need."""
    with ExitStack() as stack:
        yield {
            "tensorflow": stack.enter_context(
                ExternalWorker("tensorflow", "hostile_keras:ready", folder=MODELS)
            ),
            "torch": stack.enter_context(ExternalWorker("torch", "hostile_torch:ready", folder=MODELS)),
        }


def held(
    sides: dict[str, ExternalWorker], framework: str, keras: str, torch: str | None = None
) -> ExternalWorker:
    """The worker of a framework with a model of hostile_*.py."""
    side = sides[framework]
    name = keras if framework == "tensorflow" or torch is None else torch
    side.hold(name if ":" in name else f"hostile_{'keras' if framework == 'tensorflow' else 'torch'}:{name}")
    return side


def said(function: Any, *arguments: Any, **named: Any) -> str:
    """The one line of the ExternalModelError that a call ends in."""
    with pytest.raises(ExternalModelError) as caught:
        function(*arguments, **named)
    line = str(caught.value)
    assert "\n" not in line and "Traceback" not in line
    # Only the user's files are named.
    assert not re.search(r"(common|tf_impl|torch_impl|site-packages)/\S*\.py", line)
    return line


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


# What is wrong with a target, and what is said of it; TensorFlow's where it differs.
BROKEN = {
    "needs": r"needs cannot be called so: missing a required argument: 'width'; .* needs\(width, \*, depth\)",
    "fails": r"fails raised (TypeError|ValueError): .* \(hostile_\w+.py:\d+\)$",
    "no_model": r"no_model gives an object of type [\w.]+; it must give a (keras.Model|torch.nn.Module)$",
    "number": r"number is of type int; it must be a (keras.Model|torch.nn.Module), or a function or class",
    "leaves": r"leaves called sys.exit\((3|'enough')\) \(hostile_\w+.py:\d+\)",
    "nedes": r"has no 'nedes'; closest are .*needs",
    "needs.more": r"needs has no 'more'",
}
OLDER = {
    "tensorflow": {
        "Variables": r"must give a keras.Model: make its variables weights of a keras.layers.Layer",
        "saved": r"must give a keras.Model: a SavedModel has no layers; give the Keras model",
        "wrapped": r"wrapped holds a SavedModel \(TFSMLayer\), whose weights nobody can see",
    },
    "torch": {
        "scripted": r"scripted gives TorchScript, whose layers nobody can see",
        "traced": r"traced gives TorchScript",
        "meta": r"meta: weight is on the meta device and holds no numbers",
    },
}


@pytest.mark.parametrize("framework", BOTH)
def test_a_model_without_layers_or_numbers_is_one_line(
    sides: dict[str, ExternalWorker], framework: str
) -> None:
    for name, pattern in OLDER[framework].items():
        assert re.search(pattern, said(held, sides, framework, name)), name


def test_what_is_compiled_is_the_module_in_it(sides: dict[str, ExternalWorker]) -> None:
    side = held(sides, "torch", "compiled")
    assert list(side.read()) == ["weight", "bias"]


@pytest.mark.parametrize("framework", BOTH)
def test_a_model_that_cannot_be_built_is_one_line(sides: dict[str, ExternalWorker], framework: str) -> None:
    for name, pattern in BROKEN.items():
        assert re.search(pattern, said(held, sides, framework, name)), name
    # The process lives on, and says that it holds nothing.
    assert re.search("'more'", said(sides[framework].read))
    assert len(held(sides, framework, "ready").read()) == 2


@pytest.mark.parametrize("framework", BOTH)
def test_a_module_that_cannot_be_imported_is_one_line(
    sides: dict[str, ExternalWorker], framework: str
) -> None:
    side = sides[framework]
    line = said(side.hold, "hostile_tourch:build")
    assert (
        "no module 'hostile_tourch'" in line and "closest are hostile_torch" in line and str(MODELS) in line
    )
    line = said(side.hold, "hostile_missing:build")
    assert "No module named 'nowhere_to_be_found' (hostile_missing.py:3); install it" in line
    assert "'parity' is the toolkit's own package here, and hides yours" in said(
        side.hold, "hostile_shadow:build"
    )
    other = {"tensorflow": "torch", "torch": "keras"}[framework]
    assert f"imports {other} (hostile_both.py:" in said(side.hold, "hostile_both:build")
    side.hold(f"hostile_either:build{'_keras' if framework == 'tensorflow' else ''}")
    assert len(side.read()) == 2
    assert "package.module:attribute" in said(side.hold, "hostile_either")


def test_input_is_not_waited_for(sides: dict[str, ExternalWorker]) -> None:
    assert "waited for input (hostile_torch.py:" in said(held, sides, "torch", "asks")
    assert "invalid literal" in said(held, sides, "tensorflow", "asks")


@pytest.mark.parametrize("framework", BOTH)
def test_what_a_model_prints_is_no_answer(sides: dict[str, ExternalWorker], framework: str) -> None:
    side = held(sides, framework, "chatters")
    assert side.forward(normal(3, 4)).outputs["output"].shape == (3, 2)


@pytest.mark.sweep
@pytest.mark.parametrize("framework", BOTH)
def test_arguments_are_passed_on(sides: dict[str, ExternalWorker], framework: str) -> None:
    module = {"tensorflow": "hostile_keras", "torch": "hostile_torch"}[framework]
    sides[framework].hold(Target.of(f"{module}:needs", {"width": 4, "depth": 3}))
    assert len(sides[framework].read()) == 6


@pytest.mark.parametrize("framework", BOTH)
def test_an_error_in_a_pass_is_one_line(sides: dict[str, ExternalWorker], framework: str) -> None:
    side = held(sides, framework, "FailsLater")
    assert re.search(
        r"a forward pass of .*FailsLater raised \w+: .* \(hostile_\w+.py:\d+\)",
        said(side.forward, normal(3, 4)),
    )
    side = held(sides, framework, "Mixed")
    assert "give it the type of the inputs" in said(side.forward, normal(3, 4))
    assert "give numbers" in said(side.forward, np.array(["text"]))


@pytest.mark.parametrize("framework", BOTH)
def test_float32_that_code_asks_for_is_float64(sides: dict[str, ExternalWorker], framework: str) -> None:
    side, x = held(sides, framework, "Casting"), normal(3, 4)
    (output,) = side.forward(x).outputs.values()
    (kernel,) = (value for value in side.read().values() if value.ndim == 2)
    # Biases are zero in Keras, which adds the sum of its inputs; tables of NumPy's are of float32.
    if framework == "tensorflow":
        due = x @ kernel * [1, 0.0625, 1] + x.sum() * np.log(2.0)
    else:
        due = (x @ kernel.T + side.read()["fc.bias"]) * [0.25, 0.0625, 4, 16]
    assert np.abs(output - due).max() < 1e-14


@pytest.mark.parametrize("framework", BOTH)
def test_several_inputs_and_outputs_and_a_shared_layer(
    sides: dict[str, ExternalWorker], framework: str
) -> None:
    side = held(sides, framework, "branches", "Branches")
    inputs = {"tokens": np.arange(15).reshape(3, 5) % 11, "numbers": normal(3, 6)}
    passed = side.gradients(inputs, np.array([1, 2, 3]), CLASSES)
    assert passed.outputs["logits"].shape == (3, 11)
    calls = [name for name in passed.activations if "before" not in name]
    assert [name for name in calls if "shared" in name] == ["shared", "shared#1"]
    assert (
        set(passed.outputs)
        == {
            "tensorflow": {"logits", "features"},
            "torch": {"logits", "features/0", "features/1"},
        }[framework]
    )
    if framework == "torch":
        assert passed.untouched == ("spare.weight", "spare.bias")
        assert "head.weight" not in passed.gradients, "it is the same tensor as embed.weight"
        assert "head.weight" in side.read()
    features = {"tensorflow": "features", "torch": "features/0"}[framework]
    both = side.gradients(inputs, {features: normal(3, 6), "logits": normal(3, 11)}, NUMBERS)
    assert (set(both.terms), both.count) == ({features, "logits"}, 1)
    assert both.loss_sum == pytest.approx(sum(both.terms.values()))
    assert "received nombers, tokens" in said(
        side.forward, {"nombers": 1.0, "tokens": inputs["tokens"]}
    ).replace("received the inputs", "received")
    assert "one array without a name" in said(side.forward, inputs["tokens"])
    assert "logit, and the model gives logits" in said(side.gradients, inputs, {"logit": normal(1)}, CLASSES)
    assert "closest are shared" in said(side.forward, inputs, inject={"shard": normal(3, 6)})
    assert "feed shared#1: the layer gives the shape (3, 6)" in said(
        side.forward, inputs, inject={"shared#1": normal(3)}
    )


def test_inputs_in_lists_and_by_name(sides: dict[str, ExternalWorker]) -> None:
    side = held(sides, "tensorflow", "listed")
    a, b = normal(3, 4), normal(3, 4, seed=1)
    passed = side.forward({"b": b, "a": a})
    assert np.array_equal(passed.outputs["0"], a - b)
    assert "not clear which" in said(side.gradients, {"a": a, "b": b}, a, NUMBERS)
    side = held(sides, "tensorflow", "Two")
    assert set(side.forward({"memory": a, "query": b}).outputs) == {"0", "1/0"}


@pytest.mark.parametrize("framework", BOTH)
def test_a_lazy_model_is_built_by_its_first_pass(sides: dict[str, ExternalWorker], framework: str) -> None:
    side = held(sides, framework, "Lazy")
    assert "before the first pass" in said(side.read)
    images = normal(3, 2, 8, 8) if framework == "torch" else normal(3, 8, 8, 2)
    passed = side.gradients(images, np.array([0, 1, 2]), CLASSES)
    assert set(passed.gradients) | set(passed.buffers) == set(side.read())
    outline = side.outline(images)
    assert {name for name in passed.activations if "before" not in name} >= {
        info.path for info in outline.layers if info.calls
    }
    assert [info.calls for info in outline.layers if info.path == "dense"] == (
        [0] if framework == "tensorflow" else []
    )


def test_weights_go_by_their_names_and_several_of_one_name_by_their_attributes(
    sides: dict[str, ExternalWorker],
) -> None:
    side = sides["tensorflow"]
    side.hold("worker_keras:alike")
    own = ("dense/kernel", "dense/bias", "own/gain", "own/shift")
    assert [*side.read()] == [f"{part}/{name}" for part in ("first", "second") for name in own]


@pytest.mark.parametrize("framework", BOTH)
def test_what_draws_random_numbers_is_found(sides: dict[str, ExternalWorker], framework: str) -> None:
    side = held(sides, framework, "random", "Random")
    x = normal(3, 4) if framework == "torch" else normal(3, 4, 4, 1)
    drawing = {"torch": ["drop", "block"], "tensorflow": ["flip", "drop", "noisy"]}[framework]
    assert side.stochastic(x) == drawing
    same = [side.forward(x, training=True, seed=seed).outputs["output"] for seed in (1, 1, 2)]
    assert np.array_equal(same[0], same[1]) and not np.array_equal(same[0], same[2])
    assert side.dropout(False) == ["drop"]
    assert side.stochastic(x) == [name for name in drawing if name != "drop"]
    assert side.dropout(True) == ["drop"]
    assert side.stochastic(x) == drawing
    assert not side.dropout(True)


@pytest.mark.parametrize("framework", BOTH)
def test_tensors_that_the_model_does_not_own_are_found(
    sides: dict[str, ExternalWorker], framework: str
) -> None:
    side = held(sides, framework, "Unowned")
    unregistered_parameters = side.unregistered_parameters(normal(3, 4))
    assert len(unregistered_parameters) == {"tensorflow": 1, "torch": 2}[
        framework
    ] and "shape (4,)" in unregistered_parameters[0].replace("(3, 4)", "(4,)")
    side = held(sides, framework, "ready")
    assert side.unregistered_parameters(normal(3, 4)) == []


@pytest.mark.parametrize("framework", BOTH)
def test_nan_comes_as_nan(sides: dict[str, ExternalWorker], framework: str) -> None:
    side = held(sides, framework, "not_a_number", "NotANumber")
    passed = side.gradients(normal(8, 4), np.array([0, 1, 2, 0, 1, 2, 0, 1]), CLASSES)
    assert np.isnan(passed.loss_sum or 0.0)
    assert not np.isnan(passed.activations["fc"]).any() and np.isnan(passed.outputs["output"]).any()


@pytest.mark.parametrize("framework", BOTH)
def test_types_that_the_code_fixes_are_converted(sides: dict[str, ExternalWorker], framework: str) -> None:
    side = held(sides, framework, "fixed", "Fixed")
    passed = side.forward(normal(3, 4))
    kinds = {
        array.dtype
        for array in (*side.read().values(), *passed.outputs.values(), *passed.activations.values())
    }
    assert kinds == {np.dtype("float64")}
    side = held(sides, framework, "sets_types", "moves")
    assert side.forward(normal(3, 4)).outputs["output"].dtype == np.float64


def test_tables_are_computed_in_the_precision(sides: dict[str, ExternalWorker]) -> None:
    """Also a fixed type costs digits only where it is used: 1/3 rounded to float32 differs by 1e-8."""
    side = held(sides, "torch", "Fixed")
    state = {name: np.zeros_like(array) for name, array in side.read().items()}
    side.write({**state, "fc.bias": np.ones(4)})
    assert np.array_equal(side.forward(normal(1, 4)).outputs["output"][0], 1 / np.arange(1, 5))


@pytest.mark.parametrize("framework", BOTH)
def test_a_model_without_anything_to_train_is_one_line(
    sides: dict[str, ExternalWorker], framework: str
) -> None:
    if framework == "torch":
        side = held(sides, "torch", "silent")
    else:
        side = held(sides, "tensorflow", "ready")
        side.set("ready", "trainable", False)
    width = {"tensorflow": 2, "torch": 4}[framework]
    assert "no trained tensor" in said(side.gradients, normal(3, 4), normal(3, width), NUMBERS)
    wrong = said(side.gradients, normal(3, 4), normal(3, 1), NUMBERS)
    assert f"targets of the shape (3, {width}); received (3, 1)" in wrong, "it would be broadcast"
    if framework == "tensorflow":
        side.set("ready", "trainable", True)


def test_a_model_within_a_model(sides: dict[str, ExternalWorker]) -> None:
    side = held(sides, "tensorflow", "nested")
    passed = side.gradients(normal(3, 4), normal(3, 2), NUMBERS)
    assert list(passed.activations) == [
        *("inner/deep", "inner/still", "inner"),
        *("inner/deep#1", "inner/still#1", "inner#1", "head"),
    ]
    assert set(passed.gradients) == {"inner/deep/kernel", "inner/deep/bias", "head/kernel", "head/bias"}
    assert passed.penalty == pytest.approx(0.01 * np.square(passed.outputs["output"]).sum() / 3, rel=1e-6)
    assert {"inner/still/kernel", "inner/still/bias"} < set(side.read())


def test_a_model_of_text_is_one_line_without_the_names_of_kernels(sides: dict[str, ExternalWorker]) -> None:
    line = said(held(sides, "tensorflow", "words").forward, normal(3, 4))
    assert "not supported" in line and "{{" not in line and "[Op" not in line


@pytest.mark.slow
def test_a_model_without_eager_execution_is_one_line() -> None:
    with ExternalWorker("tensorflow", "hostile_keras:graphs", folder=MODELS) as side:
        assert "switched TensorFlow's eager execution off" in said(side.read)


def test_a_state_that_is_no_buffer_and_what_an_edit_registers_are_taken_back(
    sides: dict[str, ExternalWorker],
) -> None:
    side = held(sides, "torch", "worker_torch:Remembering")
    before = side.forward(normal(3, 4), training=True).outputs["output"]
    code = (MODELS / "worker_torch.py").read_text().splitlines()
    (number,) = [place for place, text in enumerate(code, 1) if "self.seen = [" in text]
    line = f"worker_torch.py:{number}"
    every = side.code_edits([line], others=["rest"])
    for at, edit in [(at, edit) for at, edits in every.items() for edit in range(len(edits))]:
        # Of `x = self.seen[number] = layer(x)` one gives the list's name to a module.
        with suppress(ExternalModelError):
            side.edit_code(at, edit, True)
            side.forward(normal(3, 4), training=True)
        side.edit_code(at, edit, False)
    # That would be one of the model's then, and no list could take its place.
    np.testing.assert_array_equal(side.forward(normal(3, 4), training=True).outputs["output"], before)


@pytest.mark.slow
def test_recurrent_layers_masks_and_attention(sides: dict[str, ExternalWorker]) -> None:
    side = held(sides, "tensorflow", "recurrent")
    tokens = np.arange(15).reshape(3, 5) % 9
    passed = side.gradients(tokens, normal(3, 3), NUMBERS)
    assert not passed.untouched and {"embed", "both", "each", "attend", "last"} <= set(passed.activations)
    again = side.gradients(tokens, normal(3, 3), NUMBERS, inject=passed.activations)
    assert all(np.array_equal(again.gradients[name], value) for name, value in passed.gradients.items())
    side.dropout(False)
    assert side.stochastic(tokens) == []


# A pair by hand: what the numbers mean on both sides.


def images() -> np.ndarray:
    return normal(4, 7, 7, 2)


def native(framework: str, x: np.ndarray) -> np.ndarray:
    return x if framework == "tensorflow" or x.ndim < 4 else x.transpose(0, 3, 1, 2)


def keras_state() -> dict[str, np.ndarray]:
    shapes = {
        "conv/kernel": (3, 3, 2, 3),
        "conv/bias": (3,),
        "norm/gamma": (3,),
        "norm/beta": (3,),
        "norm/moving_mean": (3,),
        "norm/moving_variance": (3,),
        "hidden/kernel": (48, 6),
        "hidden/bias": (6,),
        "head/kernel": (6, 4),
        "head/bias": (4,),
    }
    state = {name: 0.5 * normal(*shape, seed=k) for k, (name, shape) in enumerate(shapes.items())}
    return {**state, "norm/moving_variance": 1.0 + state["norm/moving_variance"] ** 2}


NAMES = {
    "kernel": "weight",
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}


def torch_name(name: str) -> str:
    layer, role = name.split("/")
    return f"{layer}.{NAMES.get(role, role)}"


def torch_array(array: np.ndarray) -> np.ndarray:
    return array.transpose(3, 2, 0, 1) if array.ndim == 4 else array.T if array.ndim == 2 else array


def as_torch(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {torch_name(name): torch_array(array) for name, array in state.items()}


@pytest.fixture
def nets(sides: dict[str, ExternalWorker]) -> dict[str, ExternalWorker]:
    """The net and its port with the same weights, and every default its own."""
    sides["tensorflow"].hold("worker_keras:net")
    sides["torch"].hold("worker_torch:Net")
    sides["tensorflow"].write(keras_state())
    sides["torch"].write(as_torch(keras_state()))
    return sides


def settle(nets: dict[str, ExternalWorker]) -> None:
    """Make the port the same as the net."""
    side = nets["torch"]
    assert side.set("conv", "padding", "same") == (1, 1, 1, 1)
    assert side.set("norm", "epsilon", 1e-3) == 1e-5
    assert side.set("norm", "decay", 0.99) == 0.9
    assert side.set("norm", "running_variance", "biased") == "unbiased"
    assert side.set("leaky", "negative_slope", 0.3) == 0.01
    nets["tensorflow"].exact_constants(True)


def gap(nets: dict[str, ExternalWorker], run: Any) -> dict[str, float]:
    """By what outputs, gradients and buffers differ: the largest of each, relative to the largest value of its kind.

    Not tensor by tensor: a bias before a batch norm has a gradient of rounding noise alone.
    """
    ours, theirs = (run(framework, nets[framework]) for framework in BOTH)
    found = {}
    for part in ("outputs", "gradients", "buffers"):
        left, right = getattr(ours, part), dict(getattr(theirs, part))
        right.pop("norm.num_batches_tracked", None)
        left = left if part == "outputs" else as_torch(left)
        assert set(left) == set(right)
        largest = max((float(np.abs(value).max()) for value in left.values()), default=1.0)
        gaps = [float(np.abs(value - right[name]).max()) for name, value in left.items()]
        found[part] = max(gaps, default=0.0) / largest
    return found


def trained(framework: str, side: ExternalWorker) -> PassResult:
    return side.gradients(native(framework, images()), np.array([0, 1, 2, 3]), CLASSES)


def test_a_pair_is_the_same_after_its_settings_are(nets: dict[str, ExternalWorker]) -> None:
    before = gap(nets, trained)
    assert min(before.values()) > 1e-3, "the defaults differ"
    settle(nets)
    assert max(gap(nets, trained).values()) <= LIMIT
    assert gap(nets, lambda framework, side: side.forward(native(framework, images())))["outputs"] <= LIMIT
    # Each of the settings is needed, and can be put back.
    for layer, setting, value in (
        ("conv", "padding", (1, 1, 1, 1)),
        ("norm", "epsilon", 1e-5),
        ("norm", "decay", 0.9),
        ("norm", "running_variance", "unbiased"),
        ("leaky", "negative_slope", 0.01),
    ):
        old = nets["torch"].set(layer, setting, value)
        worst = max(gap(nets, trained).values())
        # Padding on both sides is the same as Keras's where the input is odd.
        assert (worst > 1e-6) is (setting != "padding"), setting
        nets["torch"].set(layer, setting, old)
        assert max(gap(nets, trained).values()) <= LIMIT
    nets["tensorflow"].exact_constants(False)
    assert 1e-10 < gap(nets, trained)["outputs"] < 1e-7, "TensorFlow's constants in float32"


def test_keras_follows_torch_too(nets: dict[str, ExternalWorker]) -> None:
    side = nets["tensorflow"]
    assert side.set("conv", "padding", (1, 1, 1, 1)) == "same"
    assert side.set("norm", "epsilon", 1e-5) == 1e-3
    assert side.set("norm", "decay", 0.9) == 0.99
    assert side.set("norm", "running_variance", "unbiased") == "biased"
    assert side.set("leaky", "negative_slope", 0.01) == 0.3
    side.exact_constants(True)
    assert max(gap(nets, trained).values()) <= LIMIT
    assert side.set("hidden/activation", "approximate", True) is False
    assert gap(nets, trained)["outputs"] > 1e-6
    assert side.set("hidden/activation", "approximate", False) is True
    assert side.set("hidden/activation", "function", "relu") == "gelu"
    assert side.set("hidden/activation", "function", "linear") == "relu"
    assert side.set("hidden/activation", "function", "gelu") == "linear"
    assert max(gap(nets, trained).values()) <= LIMIT
    side.exact_constants(False)


def test_what_tensorflow_computes_in_float32_is_as_exact_as_torch(sides: dict[str, ExternalWorker]) -> None:
    x = np.abs(normal(2, 12, 12, 4))
    outputs = {}
    for framework, side in sides.items():
        side.hold(f"worker_{'keras' if framework == 'tensorflow' else 'torch'}:rounded")
        side.exact_constants(True)
        outputs[framework] = next(iter(side.forward(native(framework, x)).outputs.values()))
        side.exact_constants(False)
    ours, theirs = (outputs[framework] for framework in BOTH)
    assert ours.dtype == theirs.dtype == np.float64
    assert np.abs(ours - theirs).max() <= 1e-12 * np.abs(ours).max()


def test_causal_padding_is_set_back(sides: dict[str, ExternalWorker]) -> None:
    side, x = held(sides, "tensorflow", "causal"), normal(3, 5, 2)
    stock = side.forward(x).outputs["output"]
    assert side.set("conv", "padding", (1, 1)) == "causal"
    assert side.forward(x).outputs["output"].shape == (3, 6, 3)
    assert side.set("conv", "padding", "causal") == (1, 1)
    assert np.array_equal(side.forward(x).outputs["output"], stock)
    # One zero before, and none behind.
    side.set("conv", "padding", (1, 0))
    assert np.array_equal(side.forward(x).outputs["output"], stock)


def test_another_model_begins_with_stock_constants(nets: dict[str, ExternalWorker]) -> None:
    """Also where an experiment on the one before has failed half-way."""
    side, x = nets["tensorflow"], native("tensorflow", images())
    stock = side.forward(x).outputs["output"]
    weights = side.read()
    side.exact_constants(True)
    exact = side.forward(x).outputs["output"]
    assert not np.array_equal(stock, exact)
    side.hold("worker_keras:net")
    side.outline(x)
    side.write(weights)
    assert np.array_equal(side.forward(x).outputs["output"], stock)


@pytest.mark.parametrize("size", [6, 7])
def test_padding_with_strides_on_both_sides(sides: dict[str, ExternalWorker], size: int) -> None:
    """Of an even size, Keras pads the end alone."""
    x = normal(2, 7, 7, 2)[:, :size, :size]
    sides["tensorflow"].hold(Target.of("worker_keras:conv", {"size": size}))
    sides["torch"].hold("worker_torch:conv")
    kernel = normal(3, 3, 2, 3)
    sides["tensorflow"].write({"conv/kernel": kernel, "conv/bias": np.zeros(3)})
    sides["torch"].write({"conv.weight": torch_array(kernel), "conv.bias": np.zeros(3)})

    def outputs() -> list[np.ndarray]:
        ours = sides["tensorflow"].forward(x).outputs["output"]
        theirs = sides["torch"].forward(native("torch", x)).outputs["output"].transpose(0, 2, 3, 1)
        return [ours, theirs]

    ours, theirs = outputs()
    assert bool(np.abs(ours - theirs).max() <= LIMIT) is (size == 7)
    old = sides["torch"].set("conv", "padding", "same")
    ours, theirs = outputs()
    assert np.abs(ours - theirs).max() <= LIMIT
    sides["torch"].set("conv", "padding", old)
    sides["tensorflow"].set("conv", "padding", (1, 1, 1, 1))
    ours, theirs = outputs()
    assert np.abs(ours - theirs).max() <= LIMIT


def test_averages_over_padding_on_both_sides(sides: dict[str, ExternalWorker]) -> None:
    sides["tensorflow"].hold("worker_keras:pool")
    sides["torch"].hold("worker_torch:pool")
    x = normal(2, 6, 6, 2)

    def difference() -> float:
        ours = sides["tensorflow"].forward(x).outputs["output"]
        theirs = sides["torch"].forward(native("torch", x)).outputs["output"].transpose(0, 2, 3, 1)
        return float(np.abs(ours - theirs).max())

    assert difference() > 0.1
    assert sides["torch"].set("pool", "padding", "same") == (1, 1, 1, 1)
    assert difference() > 0.01, "torch counts what is padded"
    assert sides["torch"].set("pool", "count_padding", False) is True
    assert difference() <= LIMIT
    sides["torch"].set("pool", "padding", (1, 1, 1, 1))
    sides["torch"].set("pool", "count_padding", True)
    assert sides["tensorflow"].set("pool", "padding", (1, 1, 1, 1)) == "same"
    assert difference() > 0.01
    assert sides["tensorflow"].set("pool", "count_padding", True) is False
    assert difference() <= LIMIT
    assert sides["tensorflow"].set("pool", "padding", "same") == (1, 1, 1, 1)
    assert sides["tensorflow"].set("pool", "count_padding", False) is True
    assert difference() > 0.1


@pytest.mark.parametrize("framework", BOTH)
def test_settings_that_cannot_be_changed_are_refused(nets: dict[str, ExternalWorker], framework: str) -> None:
    side = nets[framework]
    assert "has no layer 'konv'; closest are conv" in said(side.set, "konv", "padding", "valid")
    assert "has no setting 'slope'; it has" in said(side.set, "conv", "slope", 1.0)
    assert "filters cannot be changed to 5" in said(side.set, "conv", "filters", 5)
    assert "padding cannot be changed to 'around'" in said(side.set, "conv", "padding", "around")
    assert "no layer that 'x*' fits" in said(side.set, "x*", "epsilon", 1.0)
    assert side.set("n*", "epsilon", 0.5) == {"norm": {"tensorflow": 1e-3, "torch": 1e-5}[framework]}
    assert side.set("norm", "epsilon", 1e-3) == 0.5


@pytest.mark.parametrize("framework", BOTH)
def test_gradients_are_those_of_the_loss(nets: dict[str, ExternalWorker], framework: str) -> None:
    """Against differences of losses: of weights by writing them, of activations by feeding them."""
    side, x = nets[framework], native(framework, images())
    targets = np.array([0, 1, 2, 3])
    passed = side.gradients(x, targets, CLASSES)

    def mean(**inject: Any) -> float:
        logits = side.forward(x, training=True, taps=False, **inject).outputs["output"]
        return float(np.mean(np.log(np.exp(logits).sum(-1)) - logits[np.arange(4), targets]))

    assert passed.loss_sum == pytest.approx(4 * mean(), rel=1e-14) and passed.count == 4
    state = side.read()
    step = 1e-5
    for name, gradient in passed.gradients.items():
        way = normal(*gradient.shape, seed=7)
        ends = []
        for sign in (1, -1):
            side.write({name: state[name] + sign * step * way})
            ends.append(mean())
        side.write({name: state[name]})
        assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(
            (gradient * way).sum(), rel=1e-6, abs=1e-9
        ), name
    for name, gradient in passed.activation_gradients.items():
        way = normal(*gradient.shape, seed=8)
        ends = [mean(inject={name: passed.activations[name] + sign * step * way}) for sign in (1, -1)]
        assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(
            (gradient * way).sum(), rel=1e-6, abs=1e-9
        ), name
    assert set(passed.activation_gradients) == set(passed.activations)


def test_what_is_computed_again_for_the_backward_pass_is_no_call(nets: dict[str, ExternalWorker]) -> None:
    side, x = nets["torch"], native("torch", images())
    plain = trained("torch", side)
    injected = {name: plain.activations[name] + 0.1 for name in ("conv", "leaky")}
    plain_fed = side.gradients(x, np.array([0, 1, 2, 3]), CLASSES, inject=injected)
    side.hold("worker_torch:Repeating")
    side.write(as_torch(keras_state()))
    for expected, inject in ((plain, None), (plain_fed, injected)):
        again = side.gradients(x, np.array([0, 1, 2, 3]), CLASSES, inject=inject)
        for part in ("outputs", "activations", "gradients", "activation_gradients"):
            left, right = getattr(expected, part), getattr(again, part)
            assert set(left) == set(right)
            assert all(np.abs(value - right[name]).max() <= LIMIT for name, value in left.items()), part


@pytest.mark.parametrize("framework", BOTH)
def test_a_pass_leaves_the_model_as_it_was(nets: dict[str, ExternalWorker], framework: str) -> None:
    side, x = nets[framework], native(framework, images())
    before = side.read()
    passed = side.forward(x, training=True)
    assert {name for name in passed.buffers if "num_batches" not in name} == {
        name for name in before if "moving_" in name or "running_" in name
    }
    assert all(np.array_equal(value, before[name]) for name, value in side.read().items())
    assert not side.forward(x).buffers
    kept = side.forward(x, training=True, keep=True)
    after = side.read()
    assert all(np.array_equal(after[name], value) for name, value in kept.buffers.items())
    assert any(not np.array_equal(after[name], before[name]) for name in before)


@pytest.mark.parametrize("framework", BOTH)
def test_feeding_replaces_what_follows_and_nothing_before(
    nets: dict[str, ExternalWorker], framework: str
) -> None:
    side, x = nets[framework], native(framework, images())
    passed = side.forward(x)
    other = passed.activations["leaky"] + 1.0
    injected = side.forward(x, inject={"leaky": other})
    same = {
        name
        for name, value in passed.activations.items()
        if np.array_equal(value, injected.activations[name])
    }
    assert {"conv", "norm", "leaky"} == same & {"conv", "norm", "leaky", "hidden", "head"}
    own = side.forward(x, inject=passed.activations)
    assert all(np.array_equal(value, own.activations[name]) for name, value in passed.activations.items())
    assert list(side.forward(x, taps=["norm"]).activations) == ["norm"]
    assert not side.forward(x, taps=False).activations


@pytest.mark.parametrize("framework", BOTH)
def test_tensors_of_wrong_names_and_shapes_are_refused(
    nets: dict[str, ExternalWorker], framework: str
) -> None:
    side = nets[framework]
    name = {"tensorflow": "conv/kernel", "torch": "conv.weight"}[framework]
    before = side.read()
    wrong = {name: before[name] + 1, f"{name}s": before[name]}
    assert f"no tensor '{name}s'; closest are {name}" in said(side.write, wrong)
    assert f"{name} has the shape" in said(side.write, {name: np.zeros(3)})
    assert np.array_equal(side.read()[name], before[name]), "none is set where one is wrong"


def test_updates_are_those_of_the_optimizer(nets: dict[str, ExternalWorker]) -> None:
    settle(nets)
    ours = trained("tensorflow", nets["tensorflow"]).gradients
    after = {}
    for framework, gradients in (("tensorflow", ours), ("torch", as_torch(ours))):
        module = {"tensorflow": "worker_keras", "torch": "worker_torch"}[framework]
        side, state = nets[framework], nets[framework].read()
        moved = side.update(f"{module}:descent", [gradients, gradients])
        # SGD with momentum 0.9 by hand: v1 = g, v2 = 1.9 g; the rate is 0.1.
        for name, gradient in gradients.items():
            assert np.abs(moved[name] - (state[name] - 0.1 * 2.9 * gradient)).max() <= 1e-15
        assert all(np.array_equal(value, state[name]) for name, value in side.read().items()), (
            "it is put back"
        )
        plain = side.update(Target.of(f"{module}:descent_of", {"rate": 0.5}), gradients, keep=True)
        assert all(np.array_equal(side.read()[name], value) for name, value in plain.items())
        after[framework] = plain
        part = dict(list(gradients.items())[:1])
        assert (
            len(
                [
                    n
                    for n, v in side.update(f"{module}:descent", part).items()
                    if not np.array_equal(v, plain[n])
                ]
            )
            == 1
        )
        assert "it must give a" in said(side.update, f"{module}:NoOptimizer", gradients)
        assert "no tensor 'x'" in said(side.update, f"{module}:descent", {"x": np.zeros(1)})
    gaps = [
        np.abs(value - after["torch"][name]).max() for name, value in as_torch(after["tensorflow"]).items()
    ]
    assert max(gaps) <= 1e-15
    nets["tensorflow"].exact_constants(False)


def test_rates_are_read_step_by_step_and_one_can_be_held(nets: dict[str, ExternalWorker]) -> None:
    settle(nets)
    keras, torch = nets["tensorflow"], nets["torch"]
    assert keras.rates("worker_keras:descent", 3) is torch.rates("worker_torch:descent", 3) is None
    falling, warming = keras.rates("worker_keras:falling", 6), torch.rates("worker_torch:warming", 6)
    assert [*zip(*falling or (), strict=True)] == [pytest.approx([0.5, 0.4, 0.3, 0.2, 0.1, 0.1], rel=1e-6)]
    assert [*zip(*warming or (), strict=True)] == [pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.5], rel=1e-12)]
    assert torch.rates("worker_torch:groups", 2) == [[0.5, 0.25], [0.45, 0.225]]
    for attribute, message in (
        ("hidden", "have it give both, optimizer and scheduler"),
        ("cycling", "the scheduler changes momentum too"),
        ("short", "the scheduler has no rate for step 4"),
        ("rateless", "its parameter groups have no 'lr'"),
        ("waiting", "ReduceLROnPlateau goes by a loss"),
    ):
        assert message in said(torch.rates, f"worker_torch:{attribute}", 6)
    gradients = trained("tensorflow", keras).gradients
    for side, attribute, given in (
        (keras, "worker_keras:falling", gradients),
        (torch, "worker_torch:warming", as_torch(gradients)),
    ):
        state, moved = side.read(), side.update(attribute, [given, given], rate=0.25)
        for name, gradient in given.items():
            assert np.abs(moved[name] - (state[name] - 0.5 * gradient)).max() <= 1e-15
    state, moved = torch.read(), torch.update("worker_torch:groups", [given], rate=0.25, shares=[1.0, 3.0])
    for number, name in enumerate(given):
        due = state[name] - (0.75 if number else 0.25) * given[name]
        assert np.abs(moved[name] - due).max() <= 1e-15


def test_sums_in_a_batch_norm_of_torch_are_accurate_where_constants_are_exact(
    sides: dict[str, ExternalWorker],
) -> None:
    """Stock torch adds up one value after another; of areas of one colour each addition rounds the same way."""
    side = sides["torch"]
    side.hold("worker_torch:norm")
    x = np.repeat(np.random.default_rng(0).choice([0.1, 0.7, 1.3], (32, 2, 8, 8)), 8, -1).repeat(8, -2)
    wide = x.astype(np.longdouble)
    mean, variance = (f(wide, axis=(0, 2, 3), keepdims=True) for f in (np.mean, np.var))
    due = {
        "output": (wide - mean) / np.sqrt(variance + np.longdouble(1) / 10**5),
        "norm.running_mean": 0.1 * mean.ravel(),
        "norm.running_var": 0.9 + 0.1 * variance.ravel() * (x.size / 2) / (x.size / 2 - 1),
    }
    off = {}
    for exact in (False, True):
        side.exact_constants(exact)
        passed = side.forward(x, training=True)
        found = {**passed.outputs, **passed.buffers}
        off[exact] = max(float(np.abs(found[name] - value).max()) for name, value in due.items())
        with pytest.raises(ExternalModelError, match="more than 1 value per channel"):
            side.forward(x[:1, :, :1, :1], training=True)
    side.exact_constants(False)
    assert off[True] < 2e-15 < 1e-13 < off[False], off


def test_what_a_keras_model_adds_to_its_loss(sides: dict[str, ExternalWorker]) -> None:
    side = sides["tensorflow"]
    side.hold("worker_keras:penalised")
    kernel = side.read()["fc/kernel"]
    plain = side.gradients(normal(3, 4), normal(3, 4), NUMBERS)
    assert plain.penalty == pytest.approx(0.25 * np.square(kernel).sum(), rel=1e-14)
    # Of the mean squared error alone.
    expected = normal(3, 4).T @ (plain.outputs["output"] - normal(3, 4)) / 6
    assert np.abs(plain.gradients["fc/kernel"] - expected).max() <= 1e-15
    assert "l1 and l2" in said(
        side.gradients, normal(3, 4), normal(3, 4), parse_loss({**NUMBERS.to_dict(), "l2": 0.1})
    )


# Processes.


def folder_of(worker: ExternalWorker) -> Path:
    return worker._child.folder


def test_a_process_that_dies_is_one_line() -> None:
    with ExternalWorker("torch", "hostile_torch:dies", folder=MODELS) as worker:
        line = said(worker.read)
        assert "was killed by signal 9: out of luck" in line
        assert said(worker.read) == line and said(worker.hold, "hostile_torch:ready") == line
        folder = folder_of(worker)
        assert folder.exists()
    assert not folder.exists()


@pytest.mark.slow
def test_a_process_that_hangs_is_ended_and_says_where_it_was() -> None:
    with ExternalWorker("torch", "hostile_torch:ready", folder=MODELS) as worker:
        worker.read()
        worker.timeout_seconds = 0.5
        line = said(worker.hold, "hostile_torch:hangs")
        assert re.search(r"no answer to 'build' within 0.5 s, it is at \(\S*hostile_torch.py:\d+\)", line)
        assert not worker._child.running
        assert said(worker.read) == line


@pytest.mark.slow
def test_a_worker_ends_with_its_parent(tmp_path: Path) -> None:
    """Also while the user's code hangs."""
    body = (
        "from pathlib import Path; from parity.common.external.process.worker import ExternalWorker; import os, time\n"
        f"worker = ExternalWorker('torch', 'hostile_torch:hangs', folder=Path({str(MODELS)!r}))\n"
        "print(worker._child._process.pid, worker._child.folder, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", body],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert parent.stdout is not None
    pid, folder = parent.stdout.readline().split()
    state = Path(f"/proc/{pid}/stat")
    log = Path(folder) / "log"
    assert state.exists() and log.exists()
    time.sleep(1)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 20
    while state.exists() and state.read_text().split()[2] != "Z" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not state.exists() or state.read_text().split()[2] == "Z"


@pytest.mark.slow
@pytest.mark.parametrize("framework", BOTH)
def test_float32_serves_code_that_fixes_it(framework: str) -> None:
    module = {"tensorflow": "hostile_keras", "torch": "hostile_torch"}[framework]
    with ExternalWorker(framework, f"{module}:Casting", precision="float32", folder=MODELS) as side:
        passed = side.gradients(normal(3, 4), normal(3, 3 if framework == "tensorflow" else 4), NUMBERS)
        arrays = (*passed.outputs.values(), *passed.activations.values(), *passed.gradients.values())
        assert {array.dtype for array in arrays} == {np.dtype("float32")}


def test_what_is_asked_wrongly_of_a_worker() -> None:
    assert "received 'models.build'" in said(ExternalWorker, "torch", "models.build")
    assert "precision is one of float64, float32; received 'half'" in said(
        ExternalWorker, "torch", "a:b", precision="half"
    )
    assert "no such folder" in said(ExternalWorker, "torch", "a:b", folder=MODELS / "nowhere")
