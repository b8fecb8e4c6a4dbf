"""`parity lint` of whole nets, and its command; test_lint_settings and test_lint_optimizers go through the tables."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.common.external.lint.effective import effective, items_of
from parity.common.external.lint.initial import drawn
from parity.common.external.lint.lint import Audit, audit
from parity.common.external.lint.optimizer_settings import OPTIMIZERS
from parity.common.external.lint.settings import LAYERS, PASTE, PLUMBING, ROWS
from parity.common.spec.external.mapping import LayerPair
from parity.common.spec.external.outline import LayerInfo, Outline
from parity_tests.helpers import ROOT
from parity_tests.helpers.commands import Cli
from parity_tests.lint_cases import Ask, Found, outlines
from parity_tests.peers import Peer

# What DIFFERENCES says of a net of these layers, with all arguments left to the frameworks. (setting, row)
STOCK: Found = {
    ("norm - bn: decay", 1),
    ("norm - bn: epsilon", 2),
    ("norm - bn: running_variance", 3),
    ("optimizer: epsilon", 11),
    ("optimizer: epsilon_place", 11),
    ("flat - flatten: order", 37),
    ("leaky - leaky: negative_slope", 41),
    ("conv - conv: kernel_initializer", 43),
    ("conv - conv: bias_initializer", 43),
    ("conv2 - conv2: kernel_initializer", 43),
    ("conv2 - conv2: bias_initializer", 43),
    ("head - fc: kernel_initializer", 43),
    ("head - fc: bias_initializer", 43),
}


def named(result: Audit) -> Found:
    found = set()
    for one in result.differences:
        where = " - ".join(path for path in (one.keras, one.torch) if path is not None) or "optimizer"
        found.add((f"{where}: {one.setting}", one.row))
    assert len(found) == len(result.differences)
    return found


IMAGES = {
    "last": np.zeros((2, 12, 12, 3), np.float32),
    "first": np.zeros((2, 3, 12, 12), np.float32),
}


@pytest.fixture(scope="session")
def nets(peers: dict[str, Peer]) -> dict[str, tuple[Outline, Outline]]:
    """The CNN in its variants."""
    adam: Ask = {"optimizer": ["Adam", {}]}
    keras_adam: Ask = {"optimizer": ["Adam", {"epsilon": 1e-8}]}
    sgd: list[Ask] = [{"optimizer": ["SGD", {"learning_rate": 0.1}]}, {"optimizer": ["SGD", {"lr": 0.1}]}]
    left, right = {"inputs": "last"}, {"inputs": "first"}
    asked = {
        "stock": ({"model": "stock", **adam, **left}, {"model": "Stock", **adam, **right}),
        "equal": ({"model": "made_equal", **sgd[0], **left}, {"model": "MadeEqual", **sgd[1], **right}),
        "adam": ({"model": "made_equal", **keras_adam, **left}, {"model": "MadeEqual", **adam, **right}),
        "untraced": ({"model": "stock", **adam}, {"model": "Stock", **adam}),
    }
    return dict(zip(asked, outlines(peers, list(asked.values()), IMAGES), strict=True))


def test_stock_defaults_are_named_and_nothing_else(nets: dict[str, tuple[Outline, Outline]]) -> None:
    result = audit(*nets["stock"])
    assert named(result) == STOCK
    assert result.unread == ()
    assert len(result.pairs) == 9  # all layers but ReLU, which torch has as a function, and it


def test_what_is_to_be_pasted_is_what_was_tried() -> None:
    tried = (ROOT / "parity_tests" / "external_models" / "lint_torch.py").read_text()
    assert PASTE["KerasBatchNorm"] in tried
    shown = (ROOT / "docs" / "how_to" / "faq.md").read_text()  # run by test_how_to.py
    assert all(code in shown for code in PASTE.values())


def test_with_all_made_equal_nothing_is_named(nets: dict[str, tuple[Outline, Outline]]) -> None:
    result = audit(*nets["equal"])
    assert result.differences == ()
    assert not result.differ
    # Only a class of one's own keeps torch's running variance biased, and what that does cannot be read.
    assert [(one.torch, one.what) for one in result.unread] == [("bn", "layer"), ("bn", "running_variance")]


@pytest.mark.parametrize("kept", ["initial values", "layout", "forward", "training mode", "update"])
def test_what_equal_weights_settle_does_not_count(
    nets: dict[str, tuple[Outline, Outline]], kept: str
) -> None:
    result = audit(*nets["stock"])
    some = tuple(one for one in result.differences if one.changes == kept)
    assert some and result.differ
    assert Audit(differences=some, unread=(), pairs=()).differ == (kept not in ("initial values", "layout"))


def test_equal_numbers_at_different_places_are_different(nets: dict[str, tuple[Outline, Outline]]) -> None:
    assert named(audit(*nets["adam"])) == {("optimizer: epsilon_place", 11)}


def test_without_a_pass_what_needs_one_is_not_compared(nets: dict[str, tuple[Outline, Outline]]) -> None:
    found = named(audit(*nets["untraced"]))
    # torch's functions are not seen, so Keras's layers stand alone.
    assert found - STOCK == {("relu: counterpart", None), ("flat: counterpart", None)}
    assert STOCK - found == {("flat - flatten: order", 37)}


def test_each_difference_says_how_to_settle_it(nets: dict[str, tuple[Outline, Outline]]) -> None:
    by_setting = {one.setting: one for one in audit(*nets["stock"]).differences}
    decay = by_setting["decay"]
    assert (decay.fix_keras, decay.fix_torch) == ("momentum=0.9", "momentum=0.01")
    assert decay.changes == "training mode"
    assert by_setting["epsilon_place"].changes == "update"
    assert by_setting["negative_slope"].changes == "forward"
    assert by_setting["kernel_initializer"].changes == "initial values"
    assert "xavier_uniform_" in by_setting["kernel_initializer"].fix_torch
    assert by_setting["order"].changes == "layout"
    for one in by_setting.values():
        assert one.fix_keras and one.fix_torch


def test_an_outline_says_which_constants_keras_takes_through_float32(peers: dict[str, Peer]) -> None:
    layers = [
        ("Rescaling", {"scale": 1 / 127.5, "offset": 0.1}, "scale, offset"),
        ("Rescaling", {"scale": [0.1, 0.25], "offset": -1.0}, "scale"),
        ("Rescaling", {"scale": 1 / 128}, ""),
        ("Normalization", {"mean": [0.5, 0.25], "variance": [0.1, 0.25]}, "variance"),
        ("Normalization", {}, ""),
    ]
    asked: list[tuple[Ask, Ask]] = [
        (
            {"model": "chain", "arguments": {"parts": [(kind, settings)], "shape": (2,)}, "inputs": "x"},
            {"model": "chain", "arguments": {"parts": [("Identity", {})]}, "inputs": "x"},
        )
        for kind, settings, _ in layers
    ]
    found = outlines(peers, asked, {"x": np.zeros((1, 2), np.float32)})
    for (keras, _), (kind, _, rounded) in zip(found, layers, strict=True):
        (layer,) = [info for info in keras.layers if info.type.endswith(kind)]
        assert layer.settings == {"rounded": rounded}


@pytest.fixture(scope="session")
def odd(peers: dict[str, Peer]) -> tuple[Outline, Outline]:
    """A model with everything that is not plain."""
    batch = np.zeros((2, 8), np.float32)
    asked: Ask = {"model": "Odd", "inputs": "x"}
    (pair,) = outlines(peers, [(asked, asked)], {"x": batch})
    return pair


def test_an_outline_sees_functions_sharing_and_what_is_unused(odd: tuple[Outline, Outline]) -> None:
    keras, torch = odd
    calls = [{info.path: info.calls for info in outline.layers} for outline in odd]
    assert calls[0] == {
        **dict.fromkeys(("first", "inner/deep", "inner/act", "scaled", "clipped", "frozen", "drop"), 1),
        "twice": 2,
        "never": 0,
    }
    assert calls[1] == {
        **dict.fromkeys(("first", "act", "inner.0", "inner.1", "scaled", "clipped", "frozen", "drop"), 1),
        "twice": 2,
        "never": 0,
    }
    functions = [
        [info.settings["function"] for info in outline.operations if info.kind == "activation"]
        for outline in odd
    ]
    assert sorted(functions[0]) == ["relu", "silu", "tanh"]
    # `act` is a layer that is nothing but one function, so it has that kind itself.
    assert functions[1] == ["relu", "tanh"]
    by_path = {info.path: info for info in torch.layers}
    assert (by_path["act"].kind, by_path["act"].settings) == ("activation", {"function": "silu"})
    assert keras.unused == ("never/kernel", "never/bias")
    assert torch.unused == ("never.weight", "never.bias")
    assert (keras.stochastic, torch.stochastic) == (("drop",), ("drop",))
    assert keras.outputs == torch.outputs == {"main": (2, 4), "side": (2, 8)}
    assert keras.order[:4] == ("first", "first/activation", "odd/tanh", "twice")
    tied = {info.name: info.tied_to for info in torch.tensors if info.tied_to}
    assert tied == {"tied.weight": "twice.weight", "tied.bias": "twice.bias"}
    frozen = {info.name for info in (*keras.tensors, *torch.tensors) if not info.trainable}
    assert frozen == {"frozen/kernel", "frozen/bias", "frozen.weight", "frozen.bias"}
    assert by_path["clipped"].overridden and not by_path["first"].overridden


def test_what_no_one_knows_is_not_read_and_the_rest_is(odd: tuple[Outline, Outline]) -> None:
    result = audit(*odd)
    assert {(one.keras, one.torch, one.what) for one in result.unread} == {
        ("scaled", None, "layer"),
        ("clipped", None, "layer"),
        ("never", None, "layer"),
        (None, "scaled", "layer"),
        (None, "clipped", "layer"),
        (None, "never", "layer"),
    }
    assert {(one.setting, one.row) for one in result.differences} == {
        ("kernel_initializer", 43),
        ("bias_initializer", 43),
    }
    assert {(pair.keras, pair.torch) for pair in result.pairs} == {
        ("first", "first"),
        ("first/activation", "relu"),
        ("odd/tanh", "tanh"),
        ("twice", "twice"),
        ("odd/silu", "act"),
        ("inner/deep", "inner.0"),
        ("inner/act", "inner.1"),
        ("drop", "drop"),
        ("frozen", "frozen"),
        ("clipped", "clipped"),
    }


def test_layers_that_a_mapping_pairs_are_compared(nets: dict[str, tuple[Outline, Outline]]) -> None:
    crossed = [LayerPair(keras="conv", torch="conv2"), LayerPair(keras="conv2", torch="conv")]
    assert named(audit(*nets["equal"], crossed)) == {
        ("conv - conv2: filters", None),
        ("conv2 - conv: filters", None),
    }
    straight = [LayerPair(keras="conv", torch="conv"), LayerPair(keras="conv2", torch="conv2")]
    assert audit(*nets["equal"], straight).differences == ()


def _without(outline: Outline, path: str) -> Outline:
    layers = tuple(info for info in outline.layers if info.path != path)
    return outline.model_copy(
        update={"layers": layers, "order": tuple(each for each in outline.order if each != path)}
    )


@pytest.mark.parametrize(
    ("path", "kind", "changes"),
    [
        ("leaky", "activation", "forward"),
        ("drop", "dropout", "training mode"),
        ("norm", "batch_norm", "forward"),
    ],
)
def test_a_layer_that_one_side_has_not_has_no_counterpart(
    nets: dict[str, tuple[Outline, Outline]], path: str, kind: str, changes: str
) -> None:
    keras, torch = nets["equal"]
    (found,) = audit(_without(keras, path), torch).differences
    assert (found.setting, found.kind, found.changes, found.keras) == ("counterpart", kind, changes, None)
    assert found.fix_torch == "remove it" and found.fix_keras.startswith("add ")


def _pooled(*functions: str) -> list[LayerInfo]:
    """Functions, a ring of zeros, and a maximum over it."""
    shape, larger = (2, 8, 8, 3), (2, 10, 10, 3)
    settings: dict[str, Any] = {"size": (3, 3), "strides": (2, 2), "padding": "valid", "ceil_mode": False}
    return [
        *(
            LayerInfo(
                path=name,
                kind="activation",
                type="",
                settings={"function": name},
                inputs=(shape,),
                outputs=(shape,),
            )
            for name in functions
        ),
        LayerInfo(
            path="pad",
            kind="zero_pad",
            type="",
            settings={"padding": (1, 1, 1, 1)},
            inputs=(shape,),
            outputs=(larger,),
        ),
        LayerInfo(path="pool", kind="max_pool2d", type="", settings=settings, inputs=(larger,)),
    ]


def test_zeros_before_a_maximum_are_its_padding_only_after_a_relu() -> None:
    for functions, values in (
        ((), "zeros"),
        (("tanh",), "zeros"),
        (("relu",), "lowest"),
        (("relu", "elu"), "zeros"),
    ):
        item = items_of(_pooled(*functions), "tensorflow")[-1]
        assert (item.kind, effective(item, item)["padding"]) == ("max_pool2d", (1, 0, 1, 0))
        assert effective(item, item)["padding_values"] == values


def test_another_order_of_calls_is_not_passed_over(nets: dict[str, tuple[Outline, Outline]]) -> None:
    keras, torch = nets["equal"]
    order = list(torch.order)
    order.remove("leaky")
    order.insert(order.index("conv2"), "leaky")
    result = audit(keras, torch.model_copy(update={"order": tuple(order)}))
    assert [(one.keras, one.torch) for one in result.unread if one.what == "order"] in (
        [("leaky", "leaky")],
        [("conv2", "conv2")],
    )


def _zero_padded(pads: tuple[int, ...], padding: Any) -> list[LayerInfo]:
    before = LayerInfo(
        path="pad",
        kind="zero_pad",
        type="",
        settings={"padding": pads},
        inputs=((2, 8, 8, 3),),
        outputs=((2, 8 + pads[0] + pads[1], 8 + pads[2] + pads[3], 3),),
    )
    settings: dict[str, Any] = {"kernel_size": (3, 3), "strides": (2, 2), "padding": padding}
    return [before, LayerInfo(path="conv", kind="conv2d", type="", settings=settings, inputs=before.outputs)]


def test_zero_padding_before_a_convolution_is_the_convolutions() -> None:
    (item,) = items_of(_zero_padded((1, 1, 1, 1), "valid"), "tensorflow")
    # The cell after, which no window of stride 2 reaches, does not count.
    assert effective(item, item)["padding"] == (1, 0, 1, 0)
    (item,) = items_of(_zero_padded((0, 1, 0, 1), "valid"), "tensorflow")
    assert effective(item, item)["padding"] == (0, 1, 0, 1)


RULES = {
    "uniform_fan_in": lambda rng, fan_in, fan_out, shape: rng.uniform(-1, 1, shape) / np.sqrt(fan_in),
    "glorot_uniform": lambda rng, fan_in, fan_out, shape: (
        rng.uniform(-1, 1, shape) * np.sqrt(6 / (fan_in + fan_out))
    ),
    "he_uniform": lambda rng, fan_in, fan_out, shape: rng.uniform(-1, 1, shape) * np.sqrt(6 / fan_in),
    "normal_0.02": lambda rng, fan_in, fan_out, shape: rng.normal(0, 0.02, shape),
    "normal_1": lambda rng, fan_in, fan_out, shape: rng.normal(0, 1, shape),
    "he_normal_uncut": lambda rng, fan_in, fan_out, shape: rng.normal(0, np.sqrt(2 / fan_in), shape),
    "he_normal_uncut of fan-out": lambda rng, fan_in, fan_out, shape: rng.normal(
        0, np.sqrt(2 / fan_out), shape
    ),
    "orthogonal": lambda rng, fan_in, fan_out, shape: np.linalg.qr(rng.normal(size=shape))[0],
    "zeros": lambda rng, fan_in, fan_out, shape: np.zeros(shape),
    "constant_0.25": lambda rng, fan_in, fan_out, shape: np.full(shape, 0.25),
    None: lambda rng, fan_in, fan_out, shape: rng.normal(0, 0.0337, shape),
}


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_initial_values_tell_their_rule(rule: str | None) -> None:
    for seed in range(20):
        values = RULES[rule](np.random.default_rng(seed), 64, 32, (64, 32))
        assert drawn(values, 64, 32, "uniform_fan_in") == rule
    assert drawn(np.full(3, np.nan), 3, 1, "zeros") is None


def lint(*arguments: str) -> subprocess.CompletedProcess[str]:
    models = "parity_tests.external_models.lint_"
    sides = [f"--keras={models}keras:made_equal", f"--torch={models}torch:MadeEqual"]
    return subprocess.run(
        [sys.executable, "-m", "parity", "lint", *sides, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--input-shape", "12,a"], "--input-shape is like 32,32,3"),
        (["--input-shape", "12,0"], "--input-shape is like 32,32,3"),
        (["--input-shape", "x=12:text"], "--input-shape is like 32,32,3"),
        (["--data", "nowhere.npz"], "--data nowhere.npz: cannot be read"),
        (["--torch-optimizer", "nonsense"], "received 'nonsense'"),
        (["--mapping", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_wrong_flags_are_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in Cli(tmp_path, capsys).refused("lint", "--keras=a:b", "--torch=a:b", *arguments)


@pytest.mark.slow
@pytest.mark.parametrize(("port", "code"), [("third/r08_vnet3d", 0), ("fifth/t06_segmentation", 1)])
def test_what_one_layer_does_here_and_another_there_is_no_difference(port: str, code: int) -> None:
    """A port of which every norm is another layer is equal, and says so; one that is not keeps its differences."""
    folder = ROOT / "parity_tests" / "ports" / port
    words = shlex.split(json.loads((folder / "truth.json").read_text())["command"])
    sides = [f"{flag}={words[words.index(flag) + 1]}" for flag in ("--keras", "--torch", "--data")]
    done = subprocess.run(
        [sys.executable, "-m", "parity", "lint", *sides, "--json"],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=300,
    )
    assert done.returncode == code, done.stderr
    changes = {each["changes"] for each in json.loads(done.stdout)["differences"]}
    assert ("forward" in changes) == bool(code) and "initial values" in changes
    assert ("are left out: with equal weights the outputs are" in done.stderr) != bool(code)


@pytest.mark.exhaustive
def test_the_command_tells_by_exit_code_and_in_words(tmp_path: Path) -> None:
    done = lint("--input-shape", "12,12,3")
    assert (done.returncode, done.stderr) == (0, "")
    assert "no differences in 9 pairs of layers" in done.stdout
    assert "not read: layer of bn" in done.stdout
    np.savez(tmp_path / "data.npz", x=IMAGES["last"], y=np.zeros(2))
    models = "parity_tests.external_models.lint_"
    optimizers = [
        f"--keras-optimizer={models}keras:stock_adam",
        f"--torch-optimizer={models}torch:stock_adam",
    ]
    stock = [
        f"--keras={models}keras:stock",
        f"--torch={models}torch:Stock",
        "--data",
        str(tmp_path / "data.npz"),
    ]
    done = lint(*stock, *optimizers)
    assert done.returncode == 1 and "trying both models" in done.stderr
    assert "6 differences of 6 kinds, 1 of layout only, 6 of initial values only" in done.stdout
    assert "in Keras momentum=0.9; in PyTorch momentum=0.01" in done.stdout
    told = json.loads(lint(*stock, *optimizers, "--json").stdout)
    assert {one["row"] for one in told["differences"]} == {row for _, row in STOCK}
    done = lint("--input-shape", "12,12,4")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr


def _traced(framework: str, *layers: tuple[str, str, dict[str, object], tuple[int, ...]]) -> Outline:
    """layers: (path, kind or the name of a function, settings, shape of the output), called in this order."""
    infos = [
        LayerInfo(
            path=path,
            kind="activation" if "scaled" in kind else kind,
            type=f"t.{kind}",
            calls=1,
            settings=settings,
            inputs=((2, 4, 5, 5),) if "softmax" in settings.values() else ((2, 5, 8),),
            outputs=(shape,),
        )
        for path, kind, settings, shape in layers
    ]
    order = tuple(info.path for info in infos)
    return Outline(
        framework=framework, target="m:a", type="t", versions={}, tensors=(), layers=tuple(infos), order=order
    )


def test_attention_is_compared_with_the_layers_that_it_is_elsewhere() -> None:
    """Whole, as products of several axes, and as torch's function with linear layers around it."""
    sizes = {"heads": 4, "head_size": 2, "scale_factor": 0.5, "use_bias": True, "output_bias": True}
    whole = ("attention", "attention", sizes, (2, 5, 8))
    softmax = {"function": "softmax", "axis": -1}

    def linear(name: str, bias: bool = True) -> tuple[str, str, dict[str, object], tuple[int, ...]]:
        return (name, "dense", {"units": 8, "use_bias": bias}, (2, 5, 8))

    function = ("scaled", "scaled_dot_product_attention", softmax, (2, 4, 5, 2))
    product = {"equation": "bqm,muh->bquh", "use_bias": True}
    einsum = [(name, "einsum_dense", product, (2, 5, 4, 2)) for name in "qkv"]
    keras = [
        _traced("tensorflow", whole),
        _traced("tensorflow", *einsum, ("soft", "activation", softmax, (2, 4, 5, 5)), linear("out")),
    ]
    torch = _traced("torch", linear("q"), linear("k"), linear("v"), function, linear("out"))
    for one in keras:
        assert audit(one, torch).differences == ()
    wrong = _traced("torch", linear("q"), linear("k"), linear("v", bias=False), function, linear("out"))
    assert [found.setting for found in audit(keras[1], wrong).differences] == ["use_bias"]
    # A softmax that the other side has not is one of a loss only at the end of a model.
    bare = [linear(name) for name in "qkv"]
    last = ("probabilities", "activation", softmax, (2, 8))
    for ours, row in (((*bare[:2], last, bare[2]), None), ((*bare, last), 32)):
        (found,) = audit(_traced("tensorflow", *ours), _traced("torch", *bare)).differences
        assert (found.setting, found.row) == ("counterpart", row)


def test_an_outline_leaves_the_model_and_the_framework_alone(peers: dict[str, Peer]) -> None:
    """Also after a pass that failed."""
    for name in ("tensorflow", "torch"):
        found = peers[name](
            "lint:left_alone", {}, {"x": np.ones((2, 8), np.float32), "wrong": np.ones((2, 5))}
        )
        assert found and all(bool(value.all()) for value in found.values()), (name, found)


def test_every_row_that_is_named_has_its_words() -> None:
    tables = [*LAYERS.values(), *OPTIMIZERS.values()]
    assert {m.row for table in tables for m in table.values() if m.row is not None} | {32, 44} <= set(ROWS)
    assert not PLUMBING & set(LAYERS)
