"""`parity pair`: a Keras model and its port train alike, or what differs is named with its layer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.common.base.errors import ExternalModelError, SpecError
from parity.common.diagnosis.result import Diagnosis
from parity.common.external.lint.lint import lint
from parity.common.external.mapping.components import deviation, relative
from parity.common.external.mapping.models import map_models
from parity.common.external.pairs.bench import Bench, LoadedPair, compared
from parity.common.external.pairs.checks import unread_optimizer
from parity.common.external.pairs.diagnose import diagnose_pair
from parity.common.external.pairs.given_gradients import beyond_rounding
from parity.common.external.pairs.objectives import parsed_loss
from parity.common.external.pairs.pair import both
from parity.common.external.pairs.points import Point, repaired_calls, segments_of
from parity.common.external.pairs.request import PairRequest, SampleFile, parsed_optimizer
from parity.common.external.pairs.setup import bench_of, copy_weights, open_pair
from parity.common.external.pairs.updates import settled_updates, update_findings
from parity.common.external.pairs.varied_weights import scaled, shuffled, varied
from parity.common.external.process.pass_result import Arrays
from parity.common.external.process.worker import ExternalWorker
from parity.common.parity.result import read_session
from parity.common.spec.external.mapping import Mapping, Reasons, read_mapping, write_mapping
from parity.common.spec.external.target import Target
from parity.common.state.zero_gradient import measured_zero_gradients
from parity_tests.helpers import ROOT
from parity_tests.helpers.commands import Cli
from parity_tests.helpers.pairs import pair_request

MODELS = "parity_tests.external_models"
IMAGES, ROWS, TWO = "images.npz", "rows.npz", "two.npz"


def write_samples(folder: Path) -> None:
    """Files for the models of `external_models`."""
    random = np.random.default_rng(0)
    np.savez(folder / IMAGES, x=random.normal(size=(60, 8, 8, 3)), y=random.integers(0, 5, 60))
    np.savez(folder / ROWS, x=random.normal(size=(60, 6)), y=random.integers(0, 3, 60))
    np.savez(folder / "texts.npz", x=random.normal(size=(60, 5, 6)), y=random.integers(0, 3, 60))
    classes = random.integers(0, 4, (60, 8, 8))
    np.savez(folder / "pixels.npz", x=random.normal(size=(60, 8, 8, 3)), y=classes)
    rows, classes = random.normal(size=(60, 6)), random.integers(0, 3, 60)
    np.savez(folder / "single.npz", x=rows, y=random.normal(size=60))
    np.savez(folder / "floats.npz", x=rows, y=classes.astype(np.float32))
    np.savez(folder / "numbers.npz", x=np.arange(60), y=random.integers(0, 3, 60))
    painted = random.normal(size=(60, 6, 6, 2))
    np.savez(folder / "painted.npz", x=random.normal(size=(60, 6)), y=painted)
    np.savez(folder / "ids.npz", x=random.integers(0, 4, (60, 6)), y=classes)
    left, right = random.normal(size=(60, 6)), random.normal(size=(60, 4))
    np.savez(folder / TWO, left=left, right=right, y=random.integers(0, 3, 60))


@pytest.fixture
def parity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    write_samples(tmp_path)
    monkeypatch.chdir(tmp_path)
    # The processes that hold the models find them there.
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return Cli(tmp_path, capsys)


def asked_for(folder: Path, keras: str, torch: str, data: str = IMAGES) -> PairRequest:
    return pair_request(
        Target.of(f"{MODELS}.pair_keras:{keras}"),
        Target.of(f"{MODELS}.pair_torch:{torch}"),
        SampleFile.of(folder / data, (), None),
    )


class Live:
    """`cnn` and its port `CNN`, alive: a fault is a setting of one of them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        write_samples(folder)
        self.asked = asked_for(folder, "cnn", "CNN")
        self.keras, self.torch = stack.enter_context(both(self.asked))
        self.opened = open_pair(self.asked, self.keras, self.torch)
        self.mapping = map_models(self.opened, None)

    def diagnosed(self, mapping: Mapping | None = None) -> Diagnosis:
        """Of the models as they are now, with weights copied by a mapping."""
        mapping = mapping or self.mapping
        outlines = tuple(
            side.outline(inputs)
            for side, inputs in zip((self.keras, self.torch), self.opened.inputs, strict=True)
        )
        opened = LoadedPair(
            self.keras, self.torch, outlines, self.opened.inputs, self.opened.losses, self.opened.layout
        )
        copy_weights(self.asked, opened, mapping)
        suspects = lint(*outlines, mapping.layers)
        return diagnose_pair(self.bench(opened, mapping), suspects)

    def bench(self, opened: LoadedPair | None = None, mapping: Mapping | None = None) -> Bench:
        return bench_of(self.asked, opened or self.opened, mapping or self.mapping)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("PYTHONPATH", str(ROOT))
        yield Live(tmp_path_factory.mktemp("live"), stack)


def named(found: Diagnosis) -> list[tuple[str, str | None]]:
    """(tensor, cause) of each finding."""
    return [(f.name, None if f.explanation is None else f.explanation.cause) for f in found.findings]


def test_a_faithful_port_agrees_in_every_stage_of_a_step(live: Live) -> None:
    found = live.diagnosed()
    assert found.verdict == "parity" and not found.findings
    (step,) = found.steps
    assert {one.stage for one in step.injected} == {
        "before",
        "forward",
        "loss",
        "backward",
        "gradient",
        "evaluation",
    }
    names = {one.name for one in step.injected}
    assert {"forward/conv2", "forward/square/before_activation", "gradient/norm/gamma"} <= names
    assert max(one.deviation for one in (*step.injected, *step.as_trained)) < 1e-13


FAULTS = {
    "epsilon": ([("norm", "epsilon", 1e-3)], [("forward/norm", "setting:epsilon")]),
    "dilation": ([("conv2", "dilation", (2, 2))], [("forward/conv2", "setting:dilation")]),
    "two at once": (
        [("conv1", "dilation", (2, 2)), ("norm", "epsilon", 1e-2)],
        [("forward/conv1", "setting:dilation"), ("forward/norm", "setting:epsilon")],
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_live_port_is_named_with_its_layer(live: Live, fault: str) -> None:
    changes, expected = FAULTS[fault]
    kept = [(layer, setting, live.torch.set(layer, setting, value)) for layer, setting, value in changes]
    try:
        found = live.diagnosed()
    finally:
        for layer, setting, value in kept:
            live.torch.set(layer, setting, value)
    assert found.verdict == "divergent"
    assert named(found) == expected
    assert {f.explanation.confidence for f in found.findings} == {"confirmed"}
    assert live.diagnosed().verdict == "parity"


@pytest.mark.parametrize(
    ("tensor", "rule", "cause"),
    [
        ("square/kernel", "same", "weights_transposed"),
        ("hidden/kernel", "transpose", "weights_permuted"),
    ],
)
def test_a_wrong_rule_in_a_mapping_is_named(live: Live, tensor: str, rule: str, cause: str) -> None:
    pairs = [
        pair.model_copy(update={"rule": rule}) if pair.keras == (tensor,) else pair
        for pair in live.mapping.tensors
    ]
    found = live.diagnosed(live.mapping.model_copy(update={"tensors": tuple(pairs)}))
    layer = tensor.partition("/")[0]
    assert named(found)[0] == (f"forward/{layer}/before_activation", cause)
    assert f"{layer}.weight" in found.findings[0].explanation.text
    assert len(found.findings) == 1


def test_what_compile_says_of_an_optimizer_is_told_where_another_one_is_asked_for(live: Live) -> None:
    asked = replace(live.asked, optimizer=parsed_optimizer("adam,learning_rate=0.1"))
    told = unread_optimizer(asked, live.opened)
    assert told.startswith("not compared: Keras's model is compiled with kind sgd, clip_norm 1.0, which")
    same = replace(live.asked, optimizer=parsed_optimizer("sgd,learning_rate=0.1,clip_norm=1"))
    assert unread_optimizer(same, live.opened) == ""


def test_exchanged_tensors_are_named(live: Live) -> None:
    exchange = {"conv1.bias": "conv2.bias", "conv2.bias": "conv1.bias"}
    bias = {"conv1/bias": np.arange(6.0), "conv2/bias": -np.arange(6.0)}
    before = live.keras.read()
    live.keras.write(bias)
    pairs = [
        pair.model_copy(update={"torch": tuple(exchange.get(name, name) for name in pair.torch)})
        for pair in live.mapping.tensors
    ]
    try:
        found = live.diagnosed(live.mapping.model_copy(update={"tensors": tuple(pairs), "layers": ()}))
    finally:
        live.keras.write({name: before[name] for name in bias})
    assert found.verdict == "divergent"
    assert "weights_swapped" in {cause for _, cause in named(found)}


def test_what_only_one_side_connects_is_between_two_points(live: Live) -> None:
    bench = live.bench()
    segments = {s.point.name: s for s in segments_of(bench.outlines, bench.points) if s.point is not None}
    assert segments["square/before_activation"].keras == {"hidden/activation", "square"}


def test_calls_in_another_order_are_paired_though_a_later_one_deviates() -> None:
    taps = ["", "#1", "#2", "#3"]
    points = [Point(f"drop{tap}", f"dropout{tap}") for tap in taps]
    same = {("drop", "dropout#1"), ("drop#1", "dropout")}
    repaired = repaired_calls(points, lambda point: 1.0 if (point.keras, point.torch) in same else 0.25)
    assert [point.torch for point in repaired] == ["dropout#1", "dropout", "dropout#2", "dropout#3"]
    assert repaired_calls(points, lambda _: 0.25) == points
    # Behind a layer that deviates no call fits: they stay in the order of those before it.
    behind = [Point(f"norm{tap}", f"bn{tap}") for tap in taps]
    repaired = repaired_calls(
        [*points, *behind], lambda point: 1.0 if (point.keras, point.torch) in same else 0.25
    )
    assert [point.torch for point in repaired[4:]] == ["bn#1", "bn", "bn#2", "bn#3"]


def test_masked_scores_hide_no_difference_of_the_others() -> None:
    """Beside -1e9 a difference of 1e-4 is 1e-13 of the largest."""
    due = np.array([[0.5, -1e9, 0.25], [-1e9, 1.0, -1e9 + 0.125]])
    off = due + np.array([[1e-4, 0, 0], [0, 0, 0]])
    assert not compared("forward/output", due, off).agrees
    assert compared("forward/output", due, due * (1 + 1e-12)).agrees
    assert deviation(due, off) == pytest.approx(1e-4) and relative(due, off) < 1e-12
    # What is large and small without a gap is one scale.
    assert compared("forward/output", np.geomspace(1e-9, 1e9, 40), np.geomspace(1e-9, 1e9, 40) + 1e-2).agrees


def test_gradients_of_rounding_are_told_from_small_ones() -> None:
    gradients = {"a": np.array([1.0]), "b": np.array([1e-16]), "c": np.array([1e-9]), "d": np.array([0.0])}
    assert list(measured_zero_gradients(gradients)) == ["b"]
    # Zero of one batch to the last bit, and not of another; and of another batch more than rounding.
    others = {"a": np.array([2.0]), "b": np.array([0.0]), "c": np.array([0.0]), "d": np.array([1e-16])}
    assert list(measured_zero_gradients(gradients, others)) == ["b", "d"]
    assert list(measured_zero_gradients(gradients, {**others, "b": np.array([1e-9])})) == ["d"]


@pytest.mark.parametrize("change", [varied, partial(shuffled, seed=0), partial(scaled, factor=4.0)])
def test_other_weights_are_arrays_like_those_that_there_were(change: Callable[[Arrays], Arrays]) -> None:
    """A model may have a single number for a weight."""
    state = {"scale": np.array(2.0), "kernel": np.array([[0.0, 1.0, 2.0]]), "steps": np.array(3)}
    other = change(state)
    assert {name: (type(value), value.shape, value.dtype) for name, value in other.items()} == {
        name: (np.ndarray, value.shape, value.dtype) for name, value in state.items() if name != "steps"
    }


def test_plain_text_becomes_a_loss_and_an_optimizer() -> None:
    optimizer = parsed_optimizer("adam,learning_rate=1e-3,beta_1=0.8")
    assert (optimizer.learning_rate, optimizer.epsilon, optimizer.epsilon_place) == (1e-3, 1e-7, "outside")
    assert parsed_loss("huber,delta=2.0").delta == 2.0
    with pytest.raises(SpecError, match=r"--loss: .*crossentrapy"):
        parsed_loss("crossentrapy")
    with pytest.raises(SpecError, match="--optimizer: "):
        parsed_optimizer("adam")
    with pytest.raises(SpecError, match="expected kind"):
        parsed_optimizer("adam learning_rate")


def test_a_file_of_samples_says_what_it_lacks(tmp_path: Path) -> None:
    write_samples(tmp_path)
    found = SampleFile.of(tmp_path / TWO, (), None)
    assert (found.inputs, found.targets, found.samples) == (("left", "right"), ("y",), 60)
    inputs, targets, weights = found.rows(58, 4)
    assert (len(targets["y"]), len(inputs["left"]), weights) == (4, 4, None)
    assert np.array_equal(inputs["left"][2:], found.rows(0, 2).inputs["left"])
    with pytest.raises(SpecError, match="has no array 'middle'"):
        SampleFile.of(tmp_path / TWO, ("middle",), None)
    np.savez(tmp_path / "ragged.npz", x=np.zeros((3, 2)), y=np.zeros(4))
    with pytest.raises(SpecError, match="x has 3, y has 4"):
        SampleFile.of(tmp_path / "ragged.npz", (), None)
    np.savez(tmp_path / "nan.npz", x=np.array([[0.0], [np.nan]]), y=np.zeros(2, int))
    assert np.isnan(SampleFile.of(tmp_path / "nan.npz", (), None).rows(0, 2).inputs["x"][1])
    np.savez(tmp_path / "infinite.npz", x=np.array([[0.0], [np.inf]]), y=np.zeros(2, int))
    with pytest.raises(SpecError, match="infinity or a NaN in row 1"):
        SampleFile.of(tmp_path / "infinite.npz", (), None).rows(0, 2)
    np.savez(tmp_path / "unnamed.npz", x=np.zeros((3, 2)), classes=np.zeros(3))
    with pytest.raises(SpecError, match="name that of the targets with --targets"):
        SampleFile.of(tmp_path / "unnamed.npz", (), None)
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(SpecError, match=r"no \.npz archive"):
        SampleFile.of(tmp_path / "text.npz", (), None)
    with pytest.raises(SpecError, match="x has the shape"):
        SampleFile.of(tmp_path / "nan.npz", ("x",), weights="x")


def pair_of(keras: str, torch: str, data: str = IMAGES, *more: object) -> list[object]:
    models = ["--keras", f"{MODELS}.pair_keras:{keras}", "--torch", f"{MODELS}.pair_torch:{torch}"]
    return ["pair", *models, "--data", data, "--steps", 4, "--global-batch", 16, *more]


TABLE_STEP = ("Table", "ids.npz", "--torch-step", f"{MODELS}.pair_torch:table_step")


def test_what_is_asked_wrongly_is_one_line(parity: Cli) -> None:
    assert "there is no such file" in parity.refused(*pair_of("cnn", "CNN", "absent.npz"))
    assert "package.module:attribute" in parity.refused(
        "pair", "--keras", "models.py", "--torch", "a:b", "--data", IMAGES
    )
    assert "--steps must be at least 1" in parity.refused(*pair_of("cnn", "CNN"), "--steps", 0)
    one = parity.refused(*pair_of("cnn", "CNN"), "--keras-optimizer", "a:b")
    assert "--keras-optimizer is given alone; give --torch-optimizer, too" in one
    both_kinds = [
        "--optimizer",
        "sgd,learning_rate=1",
        "--keras-optimizer",
        "a:b",
        "--torch-optimizer",
        "a:b",
    ]
    assert "each has its own already" in parity.refused(*pair_of("cnn", "CNN"), *both_kinds)
    assert "--mapping absent.yaml" in parity.refused(*pair_of("cnn", "CNN"), "--mapping", "absent.yaml")


def test_a_folder_that_holds_something_else_is_left_alone(parity: Cli) -> None:
    mine = parity.folder / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    assert "no earlier pair" in parity.refused(*pair_of("cnn", "CNN"), "--out", mine, "--overwrite")
    edited = parity.folder / "edited"
    edited.mkdir()
    (edited / "mapping.yaml").write_text("keras: a:b")
    refused = parity.refused(*pair_of("cnn", "CNN"), "--out", edited)
    assert "takes the mapping there" in refused
    (edited / "thesis.txt").write_text("years of work")
    refused = parity.refused(*pair_of("cnn", "CNN"), "--out", edited, "--overwrite")
    assert "holds 'thesis.txt', which is of no pair" in refused


def optimizers_of(keras: str, torch: str, steps: int, port: str = "TanhMLP") -> list[Any]:
    names = f"{MODELS}.pair_keras:{keras}", f"{MODELS}.pair_torch:{torch}"
    return [
        *pair_of("tanh_mlp", port, ROWS),
        *("--keras-optimizer", names[0]),
        *("--torch-optimizer", names[1]),
        "--steps",
        steps,
    ]


@pytest.mark.slow
def test_what_the_first_updates_of_optimizers_do_not_show_is_no_parity(parity: Cli) -> None:
    code, out, said = parity(*optimizers_of("limited_sgd", "exact_sgd", 20))
    assert (code, "clip_global_norm is 1000.0 in Keras and None in torch" in said) == (2, True), out + said
    assert "parity" not in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keras", "torch", "step", "told"),
    [
        (
            "later_sgd",
            "exact_sgd",
            101,
            "the learning rate of step 101 is 0.0625 in Keras and 0.125 in torch: Keras's changes at 101, torch's never",
        ),
        (
            "falling_sgd",
            "falling_sgd",
            0,
            "0.05 in Keras and 0.0466516 in torch: torch's schedule is one step ahead",
        ),
    ],
)
def test_a_schedule_that_torch_has_otherwise_is_named_with_its_step(
    parity: Cli, keras: str, torch: str, step: int, told: str
) -> None:
    code, out, said = parity(*optimizers_of(keras, torch, 150), "--out", "out")
    assert (code, told in out) == (1, True), out + said
    assert re.search(rf"When +at step {step}\n", out), out
    (finding,) = json.loads((parity.folder / "out" / "diagnosis.json").read_text())["findings"]
    assert finding["explanation"]["confidence"] == "confirmed"


@pytest.mark.slow
@pytest.mark.parametrize(("torch", "code"), [("rolling_sgd", 1), ("keras_like_rolling_sgd", 0)])
def test_a_momentum_that_has_the_rate_in_it_is_seen_once_the_rate_changes(
    parity: Cli, torch: str, code: int
) -> None:
    found, out, said = parity(*optimizers_of("rolling_sgd", torch, 8), "--out", "out")
    assert found == code, out + said
    if code:
        (why,) = json.loads((parity.folder / "out" / "diagnosis.json").read_text())["findings"]
        assert why["step"] == 3 and why["explanation"]["cause"] == "setting:momentum_form", why
        assert why["explanation"]["confidence"] == "confirmed"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keras", "torch", "due"),
    [
        ("rolling_sgd", "rolling_sgd", ("setting:momentum_form", "confirmed")),
        ("limited_sgd", "exact_sgd", ("setting:clipping", "likely")),
        ("later_sgd", "later_sgd", None),
    ],
)
def test_optimizers_of_models_that_differ_are_compared_over_a_training_too(
    parity: Cli, keras: str, torch: str, due: tuple[str, str] | None
) -> None:
    found, out, said = parity(*optimizers_of(keras, torch, 8, "MLP"), "--out", "out")
    assert found == 1, out + said
    told = json.loads((parity.folder / "out" / "diagnosis.json").read_text())["findings"]
    causes = [(each["explanation"]["cause"], each["explanation"]["confidence"]) for each in told]
    assert [
        cause for cause in causes if cause[0].startswith("setting:") and cause[0] != "setting:function"
    ] == [due] * bool(due), told
    assert len(told) == 1 + bool(due), "and the activation"


@pytest.mark.slow
def test_rates_that_cannot_be_read_are_no_difference(parity: Cli) -> None:
    code, out, said = parity(*optimizers_of("falling_sgd", "self_falling_sgd", 12), "--out", "out")
    assert (code, "have a scheduler move it" in said) == (2, True), out + said


@pytest.mark.slow
def test_models_are_trained_by_the_rates_of_their_schedules(parity: Cli) -> None:
    code, out, said = parity(*optimizers_of("later_sgd", "later_sgd", 150), "--out", "out")
    assert (code, "equal at each of 150 steps, 0.125 at first, 0.0625 at last" in out + said) == (0, True), (
        out + said
    )
    for record in read_session(parity.folder / "out").records:
        assert record.columns["learning_rate"].tolist() == [0.125] * 101 + [0.0625] * 49


@pytest.mark.slow
@pytest.mark.parametrize(
    ("torch", "code", "told"),
    [
        ("falling_sgd_of_groups", 0, "equal at each of 8 steps, 0.125 at first, 0.0625 at last"),
        (
            "falling_sgd_of_slow_biases",
            1,
            "0.5 times those of Keras at steps 0 to 2, and all others are Keras's  confirmed",
        ),
        (
            "falling_sgd_of_one_group",
            2,
            "by several factors: to 0.25 of 0.25 and to 0.0625 of 0.125 at step 3",
        ),
    ],
)
def test_groups_of_several_rates_follow_one_schedule(parity: Cli, torch: str, code: int, told: str) -> None:
    """Keras's optimizer, of a class of its own, has one rate, and twice that for biases."""
    found, out, said = parity(*optimizers_of("falling_sgd_of_groups", torch, 8))
    assert (found, told in out + said) == (code, True), out + said


@pytest.mark.slow
def test_a_faithful_port_trains_alike_on_two_replicas(parity: Cli) -> None:
    code, out, err = parity(*pair_of("cnn", "CNN"), "--optimizer", "adam,learning_rate=1e-3", "--out", "out")
    assert (code, "✓ parity" in out) == (0, True), out + err
    assert "results: out" in out
    result = read_session(parity.folder / "out")
    assert [record.label for record in result.records] == [
        "tensorflow mirrored x1",
        "torch single x1",
        "tensorflow mirrored x2",
        "torch ddp x2",
    ]
    assert max(check.deviation for c in result.comparisons for check in c.checks) < 1e-12
    runs = sorted((parity.folder / "out" / "runs").iterdir())
    code, out, err = parity("diagnose", runs[0], runs[-1], "--out", "why")
    assert (code, "✓ parity" in out) == (0, True), out + err
    assert json.loads((parity.folder / "why" / "diagnosis.json").read_text())["verdict"] == "parity"


@pytest.mark.exhaustive
def test_batch_norm_trains_alike_where_its_mathematics_are(parity: Cli) -> None:
    code, out, err = parity(*pair_of("pooled", "Pooled"), "--out", "out")
    assert code == 0, out + err
    labels = [record.label for record in read_session(parity.folder / "out").records]
    assert labels == ["tensorflow mirrored x2", "torch ddp x2"]


# The port, and of each finding its tensor and cause.
PORTS = {
    "OtherEpsilon": ("cnn", [("forward/norm", "setting:epsilon")]),
    "OtherActivation": ("cnn", [("forward/act1", "setting:function")]),
    "NoResidual": ("cnn", [("forward/norm", "operation:left_out")]),
    "NoFunction": ("cnn", [("forward/square/before_activation", "setting:counterpart")]),
    "TwoFaults": ("cnn", [("forward/act1", "setting:function"), ("forward/norm", "setting:epsilon")]),
    "Custom": ("cnn", [("forward/output", "operation:too_much")]),
    "OtherPadding": ("pooled", [("forward/conv1", "setting:padding")]),
}


# CI tries these of each; the others differ in what is found and not in the way there.
SOME_PORTS, SOME_REFUSED = (
    ("TwoFaults", "OtherPadding"),
    ("tanh_mlp Noisy rows.npz", "tanh_mlp Keeping rows.npz"),
)


def some(names: Iterable[str], chosen: tuple[str, ...]) -> list[Any]:
    """Names as parameters: those that CI tries too, and the rest."""
    marks = {True: pytest.mark.slow, False: pytest.mark.exhaustive}
    return [pytest.param(name, marks=marks[name in chosen]) for name in names]


@pytest.mark.parametrize("port", some(PORTS, SOME_PORTS))
def test_a_faulty_port_is_named_with_its_layer(parity: Cli, port: str) -> None:
    keras, expected = PORTS[port]
    code, out, err = parity(*pair_of(keras, port), "--out", "out")
    assert (code, "✗ divergent" in out) == (1, True), out + err
    found = json.loads((parity.folder / "out" / "diagnosis.json").read_text())
    assert [
        (f["name"], f["explanation"] and f["explanation"]["cause"]) for f in found["findings"]
    ] == expected
    # The tree marks it, though what was put right for the search agrees in its last passes.
    assert re.search(r"✗ (forward|buffers) ", out) and out.count("◀ finding") == len(expected)
    assert "training is not affected" not in out


@pytest.mark.slow
@pytest.mark.parametrize("port", ["StockNorm", "OwnStockNorm"])
def test_stock_batch_norms_are_compared_as_keras_keeps_their_variance(port: str, parity: Cli) -> None:
    # A bias before them is only torch's, and Adam makes steps of what its gradient rounds.
    few = "--replicas", 1, "--steps", 2, "--optimizer", "adam,learning_rate=0.01", "--out", "out"
    code, out, err = parity(*pair_of("normalised", port), *few)
    assert code == 0, out + err
    assert "note: stock batch norms (norm1): for evaluation torch keeps a variance over N - 1 values" in out
    assert "running_variance: biased" in (parity.folder / "out" / "pair.yaml").read_text()


@pytest.mark.exhaustive
def test_a_momentum_that_only_training_shows_is_named(parity: Cli) -> None:
    code, out, err = parity(*pair_of("pooled", "OtherMomentum"), "--replicas", 1, "--out", "out")
    assert code == 1, out + err
    found = json.loads((parity.folder / "out" / "diagnosis.json").read_text())
    assert {f["explanation"]["cause"] for f in found["findings"]} == {"setting:decay"}
    assert all("norm1" in f["name"] for f in found["findings"])
    # From the records alone.
    runs = sorted((parity.folder / "out" / "runs").iterdir())
    code, out, err = parity("diagnose", *runs, "--json", "again.json")
    assert code == 1, out + err
    again = json.loads((parity.folder / "again.json").read_text())
    assert [f["name"] for f in again["findings"]] == [f["name"] for f in found["findings"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("torch", "code"), [pytest.param("Cooled", 0, marks=pytest.mark.exhaustive), ("CooledSooner", 1)]
)
def test_what_only_a_later_step_shows_is_found_there(parity: Cli, torch: str, code: int) -> None:
    port = [*pair_of("cooled", torch, ROWS), "--replicas", 1]
    got, out, err = parity(*port, "--optimizer", "sgd,learning_rate=0.1", "--out", "out")
    assert got == code, out + err
    if code:
        (finding,) = json.loads((parity.folder / "out" / "diagnosis.json").read_text())["findings"]
        assert (finding["step"], finding["explanation"]["cause"]) == (1, "operation:number")
        assert "torch has 5 where Keras has 8" in finding["explanation"]["text"]


@pytest.mark.exhaustive
def test_a_wrong_mapping_that_is_given_is_named(parity: Cli) -> None:
    code, _, _ = parity(*pair_of("cnn", "NoResidual"), "--out", "out")
    assert code == 1
    path = parity.folder / "out" / "mapping.yaml"
    mapping = read_mapping(path)
    pairs = [
        pair.model_copy(update={"rule": "same"}) if pair.keras == ("square/kernel",) else pair
        for pair in mapping.tensors
    ]
    write_mapping(path, mapping.model_copy(update={"tensors": tuple(pairs)}))
    code, out, err = parity(*pair_of("cnn", "CNN"), "--mapping", path, "--out", "out")
    assert code == 1, out + err
    found = json.loads((parity.folder / "out" / "diagnosis.json").read_text())
    assert [(f["name"], f["explanation"]["cause"]) for f in found["findings"]] == [
        ("forward/square/before_activation", "weights_transposed")
    ]


@pytest.mark.slow
def test_of_stock_defaults_each_that_differs_is_named_and_nothing_else(parity: Cli) -> None:
    own = [f"--{side}-optimizer={MODELS}.pair_{side}:stock_adam" for side in ("keras", "torch")]
    code, out, err = parity(*pair_of("stock", "Stock"), *own, "--out", "out")
    assert code == 1, out + err
    found = json.loads((parity.folder / "out" / "diagnosis.json").read_text())
    assert {f["explanation"]["confidence"] for f in found["findings"]} == {"confirmed"}
    told = sorted(
        (why["cause"], sorted(why["layers"])) for why in (f["explanation"] for f in found["findings"])
    )
    opened = read_outlines(parity.folder)
    differences = lint(*opened)
    counted = [s for s in differences if s.changes not in ("initial values", "layout")]
    # Stock norms are compared as Keras keeps their variance.
    counted = [s for s in counted if s.setting != "running_variance"]
    defects: dict[tuple[str, str], list[str]] = {}
    for each in counted:
        here = defects.setdefault((each.setting, each.defect), [])
        here += [each.where] if each.keras or each.torch else []
    assert told == sorted((f"setting:{setting}", sorted(each)) for (setting, _), each in defects.items())
    assert max(map(len, defects.values())) > 1
    layers = {(s.keras, s.setting) for s in counted}
    norms = {(f"norm{n}", what) for n in (1, 2) for what in ("decay", "epsilon")}
    slopes = {(f"act{n}", "negative_slope") for n in (1, 2)}
    pads = {("conv1", "padding"), ("pool", "padding"), ("pool", "count_padding")}
    assert layers == norms | slopes | pads | {(None, "epsilon"), (None, "epsilon_place")}
    (initial,) = (note for note in found["notes"] if "weights were copied" in note)
    assert initial.startswith(
        f"{sum(s.changes == 'initial values' for s in differences)} initializers differ"
    )


def read_outlines(folder: Path) -> tuple:
    """Of the stock models with their optimizers."""
    asked = asked_for(folder, "stock", "Stock")
    names = [Target.of(f"{MODELS}.pair_{side}:stock_adam") for side in ("keras", "torch")]
    with both(asked) as (keras, torch):
        inputs = asked.data.rows(0, 8).inputs["x"]
        return keras.outline(inputs, names[0]), torch.outline(np.moveaxis(inputs, -1, 1).copy(), names[1])


REFUSED = {
    "dropped Between rows.npz": "no masks of ours can replace, drawn in layer lstm, and the frameworks",
    "tanh_mlp Noisy rows.npz": "random numbers that no rate turns off",
    "raises MLP rows.npz": "raised ValueError: no such backbone",
    "infinite TanhMLP rows.npz": "NaN or an infinity in first/kernel",
    "logarithm MLP rows.npz": "outputs are not finite for these samples",
    "tanh_mlp Absent rows.npz": "has no 'Absent'",
    "tanh_mlp TanhMLP two.npz": "",
}


@pytest.mark.slow
def test_a_state_that_one_side_keeps_is_a_divergence(parity: Cli) -> None:
    code, out, err = parity(*pair_of("tanh_mlp", "Keeping", ROWS), "--out", "out")
    assert code == 1, out + err
    assert "torch's model keeps something of the call before, and the other one does not" in out
    assert "confirmed" in out


@pytest.mark.slow
def test_a_scale_that_one_side_alone_trains_is_a_divergence(parity: Cli) -> None:
    code, out, err = parity(*pair_of("tanh_mlp", "Unmapped", ROWS), "--out", "out")
    assert code == 1, out + err
    assert "(none) <-> scale (rule constant(1; 7)): one side alone has this tensor" in out
    # Nor is it parity where a person has the mapping ignore it.
    mapping = read_mapping(parity.folder / "out" / "mapping.yaml")
    kept = tuple(pair for pair in mapping.tensors if pair.torch != ("scale",))
    without = mapping.model_copy(update={"tensors": kept, "ignored": Reasons(torch={"scale": "1 at first"})})
    write_mapping(parity.folder / "edited.yaml", without)
    more = "--mapping", "edited.yaml", "--out", "again"
    code, out, err = parity(*pair_of("tanh_mlp", "Unmapped", ROWS), *more)
    assert (code, "the mapping ignores scale, which torch trains and Keras has not" in out) == (1, True), out


@pytest.mark.parametrize("case", some(REFUSED, SOME_REFUSED))
def test_what_cannot_be_compared_is_one_line(parity: Cli, case: str) -> None:
    code, out, err = parity(*pair_of(*case.split()), "--out", "out")
    last = err.strip().splitlines()[-1]
    assert (code, out) == (2, ""), out + err
    assert last.startswith("parity: error: ") and REFUSED[case] in last
    assert "Traceback" not in err
    left = {path.name for path in (parity.folder / "out").glob("*")}
    assert left <= {"mapping.yaml", "weights.safetensors", "pair.json"}
    assert left or not (parity.folder / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("models", "cause", "fix"),
    [
        ("recurrent TimeFirst texts.npz", "setting:batch_first", "in torch: batch_first=True"),
        ("dropped AlwaysDropped rows.npz", "operation:too_much", "F.dropout(..., training=self.training)"),
    ],
)
def test_a_forgotten_argument_is_named(parity: Cli, models: str, cause: str, fix: str) -> None:
    code, out, err = parity(*pair_of(*models.split()), "--replicas", 1, "--out", "out")
    assert code == 1, out + err
    found = json.loads((parity.folder / "out" / "diagnosis.json").read_text())["findings"]
    first = found[0]["explanation"]
    assert first["cause"] == cause and fix in first["fix"], first
    # Nothing is said to be left out, or computed otherwise, beside it.
    assert not any(each["explanation"]["cause"].startswith("operation") for each in found[1:])


@pytest.mark.slow
def test_dropout_is_trained_as_it_is(parity: Cli) -> None:
    """On one replica and on two; the masks are there: without them the first loss is another."""
    losses = []
    for more in ([], ["--without-dropout", "--replicas", 1]):
        out = parity.folder / f"out{len(more)}"
        code, said, err = parity(*pair_of("dropped", "Dropped", ROWS), *more, "--out", out)
        assert (code, f"✓ parity  pair{'-without-dropout' if more else ''}, float64" in said) == (0, True), (
            said + err
        )
        assert "lint: no settings differ" in err, "Keras's activation is a layer in torch"
        assert (
            "the models' code is imported with float64 where it says float32: constants that it rounds" in err
        )
        runs = read_session(out).records
        assert len(runs) == (2 if more else 4)
        losses.append(float(runs[0].columns["loss_sum"][0]))
    spec = (parity.folder / "out0" / "pair.yaml").read_text()
    assert "stochastic: keyed" in spec and "constants: exact_from_build" in spec
    assert abs(losses[0] - losses[1]) > 0.01, losses


@pytest.mark.slow
@pytest.mark.parametrize(("torch", "code"), [("Net", 0), ("wrong", 1)])
def test_code_for_float32_is_compared_in_float64(parity: Cli, torch: str, code: int) -> None:
    """As it is written Keras's does not run in float64, and each side rounds otherwise."""
    models = (f"--keras={MODELS}.float32_keras:build", f"--torch={MODELS}.float32_torch:{torch}")
    ended, out, err = parity("pair", *models, "--data", ROWS, "--steps", 4, "--replicas", 1, "--out", torch)
    assert (ended, "imported with float64 where it says float32" in err) == (code, True), out + err
    assert ("0.7007" in out or "number" in out) == bool(code), out


@pytest.mark.slow
def test_a_gradient_that_is_little_but_rounding_is_no_divergence(parity: Cli) -> None:
    """Permuted runs of one framework round all alike; weights that are off by a unit show what rounding does."""
    code, out, err = parity(*pair_of("of_two", "OfTwo", ROWS), "--replicas", 1, "--out", "out")
    assert (code, "measuring how far rounding alone" in err) == (0, True), out + err


@pytest.mark.slow
def test_samples_that_a_model_couples_are_trained_on_equal_replicas(parity: Cli) -> None:
    code, out, err = parity(*pair_of("centred", "Centred", ROWS), "--out", "out")
    assert (code, "both train on 2 (--replicas 1: both on one)" in err) == (0, True), out + err
    assert {record.placement.replicas for record in read_session(parity.folder / "out").records} == {2}


@pytest.mark.slow
@pytest.mark.parametrize("torch", ["Limited", "Unlimited"])
def test_what_no_sample_reaches_is_told(parity: Cli, torch: str) -> None:
    """Where no number exceeds a limit, models with and without it are the same."""
    code, out, err = parity(*pair_of("limited", torch, ROWS), "--replicas", 1, "--out", torch)
    assert (code, "✓ parity" in out) == (0, True), out + err
    told = re.search(r"note: not shown by these samples: with inputs 100 times as large, .* limit ", out)
    assert bool(told) == (torch == "Unlimited"), out
    assert ("no effect on the outputs here: function of limit is relu6 in" in err) == (
        torch == "Unlimited"
    ), err


@pytest.mark.slow
@pytest.mark.parametrize(("optimizer", "told"), [("rmsprop", True), ("sgd,learning_rate=0.1", False)])
def test_how_stock_keras_trains_a_table_is_told(parity: Cli, optimizer: str, told: bool) -> None:
    """It squares the gradients of a row that occurs again one by one."""
    code, out, err = parity(*pair_of("table", "Table", "ids.npz"), "--optimizer", optimizer, "--out", "out")
    assert (code, "✓ parity" in out) == (0, True), out + err
    note = (
        "note: stock Keras trains embedding/embeddings otherwise, with RMSprop: of a row that a batch reads"
    )
    assert (note in out) == told, out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "optimizers", "cause", "text"),
    [
        (("tanh_mlp", "TanhMLP", ROWS), ("sgd", "late_squares"), "later", "make the same 3 updates"),
        (
            ("tanh_mlp", "TanhMLP", ROWS),
            ("sgd", "late_sgd"),
            "factor",
            "times one number: 0.5, 0.5, 0.5 at steps 3 to 5",
        ),
        (
            ("tanh_mlp", "TanhMLP", ROWS),
            ("sgd", "sgd"),
            "",
            "updates by the gradients of this training differ",
        ),
        (("tanh_mlp", "TanhMLP", ROWS), ("absolute", "absolute_sgd"), "", "these are curves of SGD"),
        # Of the user's own it is what was asked; ours would be compared as torch has it.
        (
            ("table", "Table", "ids.npz"),
            ("adam_without_epsilon",) * 2,
            "rows",
            "stock Keras trains embedding",
        ),
        # A step may give its optimizer the whole gradient; then the table is trained as in torch.
        (("summed_rows", *TABLE_STEP), ("adam_without_epsilon",) * 2, "rows", "stock Keras trains"),
        (("Summed", *TABLE_STEP), ("adam_without_epsilon",) * 2, "", "✓ parity"),
    ],
)
def test_own_optimizers_are_compared_over_the_training(
    parity: Cli, asked: tuple[str, ...], optimizers: tuple[str, str], cause: str, text: str
) -> None:
    own = ["--keras-optimizer", f"{MODELS}.pair_keras:{optimizers[0]}"]
    own += ["--torch-optimizer", f"{MODELS}.pair_torch:{optimizers[1]}"]
    code, out, err = parity(*pair_of(*asked), *own, "--steps", 6, "--replicas", 1, "--out", "out")
    assert (code, text in out + err) == (int(bool(cause)), True), out + err
    if cause:
        found = json.loads((parity.folder / "out" / "diagnosis.json").read_text())["findings"]
        assert [each["explanation"]["cause"] for each in found] == [f"updates:{cause}"]


@pytest.mark.slow
def test_code_that_counts_the_samples_trains_eagerly(parity: Cli) -> None:
    """In a graph the size of a batch is no number."""
    code, out, err = parity(*pair_of("Counting", "TanhMLP", ROWS), "--steps", 4, "--out", "out")
    assert (code, "✓ tensorflow mirrored x2" in out) == (0, True), out + err


@pytest.mark.slow
@pytest.mark.parametrize(("torch", "code"), [("Gated", 0), ("Squared", 1)])
def test_what_dead_units_hide_is_found(parity: Cli, torch: str, code: int) -> None:
    """With the weights that they begin with both gates stay closed, through a whole training."""
    found, out, err = parity(*pair_of("gated", torch, ROWS), "--replicas", 1, "--out", torch)
    assert (found, "forward in training: the outputs agree" in err) == (code, True), out + err
    if code:
        assert "with these in another order their outputs differ by" in out
        assert "confirmed" in out and "pow(" in out, out


@pytest.mark.exhaustive
def test_what_is_odd_and_harmless_trains(parity: Cli) -> None:
    for keras, torch in (("tanh_mlp", "Unused"), ("dropped", "Dropped")):
        more = ["--without-dropout", "--weights", "torch", "--replicas", 1, "--out", torch]
        code, out, err = parity(*pair_of(keras, torch, ROWS), *more)
        assert code == 0, out + err


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(("pixels", "Pixels", "pixels.npz"), marks=pytest.mark.exhaustive),
        pytest.param(("generator", "Generator", "painted.npz", "--loss", "mse"), marks=pytest.mark.slow),
        # One number a sample, which torch's model gives without an axis.
        pytest.param(("single", "Single", "single.npz", "--loss", "mse"), marks=pytest.mark.slow),
        # One number a sample, which is all that the model is given.
        pytest.param(("numbered", "Numbered", "numbers.npz"), marks=pytest.mark.slow),
        # Classes as a table has them.
        pytest.param(("tanh_mlp", "TanhMLP", "floats.npz"), marks=pytest.mark.slow),
    ],
)
def test_outputs_and_targets_of_other_forms_are_trained(parity: Cli, asked: tuple[str, ...]) -> None:
    code, out, err = parity(*pair_of(*asked), "--replicas", 1, "--out", "out")
    assert (code, "✓ parity" in out) == (0, True), out + err


@pytest.mark.exhaustive
def test_several_inputs_are_trained_on_every_strategy(parity: Cli) -> None:
    code, out, err = parity(*pair_of("two_inputs", "TwoInputs", TWO), "--out", "out")
    assert (code, "✓ parity" in out) == (0, True), out + err
    assert "✓ torch ddp x2" in out and "✓ tensorflow mirrored x2" in out


@pytest.mark.exhaustive
def test_a_constant_of_float32_is_named_and_no_fault(parity: Cli) -> None:
    for more in ([], ["--precision", "float32", "--replicas", 1, "--overwrite"]):
        code, out, err = parity(*pair_of("mlp", "MLP", ROWS), "--out", "out", *more)
        assert code == 0, out + err
        assert "some constants go through float32 (Keras" in err


@pytest.mark.exhaustive
def test_two_biases_for_one_are_named_as_what_training_cannot_keep_equal(parity: Cli) -> None:
    code, out, err = parity(*pair_of("recurrent", "Recurrent", "texts.npz"), "--replicas", 1, "--out", "out")
    assert code == 1, out + err
    found = json.loads((parity.folder / "out" / "diagnosis.json").read_text())
    assert [f["explanation"]["cause"] for f in found["findings"]] == ["rule:two_biases"]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("keras", "torch", "cause"),
    [
        ("sgd", "decaying_sgd", None),
        ("sgd", "halved_sgd", "setting:weight_decay"),
        ("adam", "decoupled_adam", "penalty"),
    ],
)
def test_a_penalty_is_what_a_weight_decay_is_where_their_updates_agree(
    parity: Cli, keras: str, torch: str, cause: str | None
) -> None:
    optimizers = ["--keras-optimizer", f"{MODELS}.pair_keras:{keras}"]
    optimizers += ["--torch-optimizer", f"{MODELS}.pair_torch:{torch}"]
    found, out, err = parity(*pair_of("decayed", "Decayed", ROWS), *optimizers, "--out", "out")
    assert (found, "torch's optimizer makes up for" in out + err) == (bool(cause), cause != "penalty"), (
        out + err
    )
    diagnosis = json.loads((parity.folder / "out" / "diagnosis.json").read_text())
    causes = [each["explanation"]["cause"] for each in diagnosis["findings"] if each["explanation"]]
    assert cause is None or cause in causes
    assert ("penalty" in causes) == (cause == "penalty")


# The penalty's factor in Keras; both optimizers; the causes, and whether torch's decay makes up for the penalty.
UPDATES: dict[str, tuple[float, str, str, list[str], bool]] = {
    "AdamW": (0.0, "adamw", "adamw", ["epsilon_place"], False),
    "AdamW without biases": (0.0, "adamw_of_kernels", "adamw_of_kernels", ["epsilon_place"], False),
    "AdamW with biases": (0.0, "adamw", "adamw_of_kernels", ["decay_mask", "epsilon_place"], False),
    "AdamW and Adam": (0.0, "adamw", "coupled_adam", ["epsilon_place", "weight_decay_mode"], False),
    "AdamW of another decay": (0.0, "adamw_default", "adamw", ["epsilon_place", "weight_decay"], False),
    "L2 and Adam": (0.01, "adam", "coupled_adam", ["epsilon_place"], True),
    "L2 and half of it": (0.005, "adam", "coupled_adam", ["epsilon_place", "weight_decay"], True),
    "L2 and SGD": (0.01, "sgd", "decaying_sgd", [], True),
    "L2 and SGD without biases": (0.01, "sgd", "sgd_of_kernels", ["decay_mask"], True),
    # Classes of one's own, told from what they do.
    "an own AdamW": (0.0, "adamw", "own_adamw", [], False),
    "an own AdamW of all": (0.0, "adamw_of_kernels", "own_adamw", ["decay_mask"], False),
    "an own AdamW of another kind": (0.0, "adamw", "uncorrected_adamw", [""], False),
    "an own SGD of Keras": (0.0, "decaying_sgd", "decaying_sgd", [], False),
    "an own SGD that decays": (0.0, "decaying_sgd", "sgd", ["weight_decay"], False),
    # torch divides by the norm plus 1e-6.
    "a common norm": (0.0, "globally_clipped_sgd", "clipped_sgd", ["clip_epsilon"], False),
    "a norm that torch alone has": (0.0, "sgd", "held_sgd", ["clipping"], False),
    "norms of each and of all": (0.0, "clipped_sgd", "clipped_sgd", ["clipping"], False),
    "elements that Keras alone clips": (
        0.0,
        "rmsprop_clipped_by_element",
        "keras_rmsprop",
        ["clipping"],
        False,
    ),
    "a rule by hand whose vectors decay": (0.0, "plain", "vector_decay", ["weight_decay"], False),
    "a rule by hand with a function too much": (0.0, "plain", "absolute_sgd", ["operation:too_much"], False),
}


def test_what_rounding_the_weights_moves_is_no_other_update() -> None:
    before = {"w": np.array([1.0, 2.0, 1e-3])}
    ours = {"w": before["w"] - 1e-9}
    sets = [{"w": np.ones(3)}] * 3
    last = np.spacing(1.0)
    for units, alike in ((2, True), (40, False)):
        theirs = {"w": ours["w"] + np.array([units * last, 0.0, 0.0])}
        moved, other = beyond_rounding(before, ours, theirs, sets)
        assert np.array_equal(moved["w"], other["w"]) == alike
    # Of a small weight a small move counts.
    moved, other = beyond_rounding(before, ours, {"w": ours["w"] + np.array([0.0, 0.0, 2 * last])}, sets)
    assert not np.array_equal(moved["w"], other["w"])


@pytest.mark.slow
def test_what_makes_updates_differ_is_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("updates")
    write_samples(folder)
    asked = asked_for(folder, "decayed", "Decayed", ROWS)
    with both(asked) as sides:
        for name, (penalty, keras, torch, causes, decayed) in UPDATES.items():
            targets = Target.of(f"{MODELS}.pair_keras:{keras}"), Target.of(f"{MODELS}.pair_torch:{torch}")
            asked = replace(
                asked,
                keras=Target.of(f"{MODELS}.pair_keras:decayed", {"factor": penalty}),
                optimizers=targets,
            )
            bench = held(asked, sides)
            suspects = lint(*bench.outlines, bench.mapping.layers)
            updates = settled_updates(bench, targets, suspects)
            told = [each.explanation for each in updates.findings]
            named = sorted(each.cause.removeprefix("setting:") if each is not None else "" for each in told)
            assert named == causes, (name, updates.findings)
            assert {each.confidence for each in told if each is not None} <= {"confirmed"}
            if name == "L2 and half of it":
                assert any("weight_decay=0.01" in each.fix for each in told if each is not None)
            assert bool(bench.decayed) == decayed, name
        for theirs, cause in {"projected_sgd": [], "sgd": ["constraint"]}.items():
            targets = Target.of(f"{MODELS}.pair_keras:sgd"), Target.of(f"{MODELS}.pair_torch:{theirs}")
            asked = replace(asked, keras=Target.of(f"{MODELS}.pair_keras:constrained"), optimizers=targets)
            bench = held(asked, sides)
            found = update_findings(bench, settled_updates(bench, targets, []))
            assert [each.explanation and each.explanation.cause for each in found] == cause, found
        # A tied tensor is updated once, and a fused one although a part of it has no gradient.
        models = [Target.of(f"{MODELS}.pair_{name}") for name in ("keras:fused", "torch:Fused")]
        asked = replace(asked, keras=models[0], torch=models[1])
        for theirs, named in (("sgd", []), ("decaying_sgd", ["setting:weight_decay"])):
            targets = Target.of(f"{MODELS}.pair_keras:sgd"), Target.of(f"{MODELS}.pair_torch:{theirs}")
            bench = held(replace(asked, optimizers=targets), sides)
            found = settled_updates(bench, targets, lint(*bench.outlines, bench.mapping.layers)).findings
            assert [each.explanation and each.explanation.cause for each in found] == named, found


def held(asked: PairRequest, sides: tuple[ExternalWorker, ExternalWorker]) -> Bench:
    """Both models in processes that are there already, with equal weights."""
    for side, target in zip(sides, (asked.keras, asked.torch), strict=True):
        side.hold(target)
    opened = open_pair(asked, *sides)
    mapping = map_models(opened, None)
    copy_weights(asked, opened, mapping)
    return bench_of(asked, opened, mapping)


def test_models_that_give_other_numbers_of_outputs_are_one_line(live: Live) -> None:
    bench = live.bench()
    passed = bench.reference(training=False)
    several = type(passed)(outputs={**passed.outputs, "more": passed.outputs["output"]})
    with pytest.raises(ExternalModelError, match="gives 2 outputs"):
        bench.outputs(several, passed)


@pytest.mark.slow
def test_what_a_gain_of_zero_hides_at_first_is_rounding_later(parity: Cli) -> None:
    code, out, err = parity(*pair_of("idle_at_first", "IdleAtFirst", ROWS), "--replicas", 1, "--out", "out")
    assert (code, "✓ parity" in out) == (0, True), out + err
    assert "noise floor" not in err, "no training of rounding alone was asked for"
    spec = (parity.folder / "out" / "pair.yaml").read_text()
    assert spec.count("with other weights its gradient on the first batch is rounding") == 1
