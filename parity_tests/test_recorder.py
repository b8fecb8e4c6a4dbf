"""Recorders for other people's scripts: they change no bit, and what they write is compared and diagnosed."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from parity.common.base.errors import NotComparableError, RecordError
from parity.common.diagnosis.result import Diagnosis, StageSummary
from parity.common.external.scripts.layers import deviations
from parity.common.external.scripts.recorded import (
    diagnose_recorded,
    factor_between,
    in_words,
    mapped,
    unwrapped,
)
from parity.common.parity.pace import pace_in_words
from parity.common.parity.result import Result, judge
from parity.common.record import RunRecord, read_record, script
from parity.common.record.script_taps import TapWriter, is_tapped, read_taps
from parity.common.record.taps import script_vector
from parity.common.spec import ScriptInfo
from parity.common.spec.external.mapping import read_mapping
from parity_tests.helpers import ROOT
from parity_tests.helpers.commands import Cli
from parity_tests.helpers.records import TORCH, Run, edit_json, one_line, received_ids, tiny_spec
from parity_tests.recorded import BARE, BATCH, SAMPLES, STEPS, batch, write_mapping
from parity_tests.test_report_html import rendered

_ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}


def run_scripts(side: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", f"parity_tests.recorded.{side}_scripts", *arguments]
    if side != "torch":
        del command[1:3]  # other people's code warns
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=_ENVIRONMENT, timeout=500)


@dataclass
class Scripts:
    """Records of the scripts in `recorded`."""

    folder: Path

    def path(self, name: str) -> Path:
        """Of 'torch/base'."""
        return self.folder / name

    def record(self, name: str) -> RunRecord:
        """With Keras's names."""
        mapping = "images.yaml" if "pictures" in name else "mapping.yaml"
        return mapped(read_record(self.path(name)), read_mapping(self.folder / mapping))

    def judged(self, first: str, second: str, floors: tuple[str, ...] = ()) -> Result:
        return judge([self.record(first), self.record(second)], [self.record(name) for name in floors])

    def diagnosed(self, first: str, second: str) -> Diagnosis:
        return diagnose_recorded(self.record(first), self.record(second))


@pytest.fixture(scope="session")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Scripts:
    folder = tmp_path_factory.mktemp("scripts")
    write_mapping(folder)
    sides = ("torch", "keras")
    for side in sides:
        (folder / side).mkdir()
    with ThreadPoolExecutor(2) as threads:
        ended = list(threads.map(lambda side: run_scripts(side, str(folder / side)), sides))
    for process in ended:
        assert process.returncode == 0, process.stderr
    return Scripts(folder)


@pytest.fixture
def parity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.chdir(tmp_path)
    return Cli(tmp_path, capsys)


def stage_of(diagnosis: Diagnosis, name: str) -> StageSummary:
    return next(stage for stage in diagnosis.stages if stage.name == name)


def first_of(diagnosis: Diagnosis) -> StageSummary | None:
    """The stage that every finding is about."""
    names = {finding.stage for finding in diagnosis.findings}
    assert len(names) <= 1
    return stage_of(diagnosis, names.pop()) if names else None


def why_of(diagnosis: Diagnosis) -> list[str]:
    """What may explain it; nothing could be tried, so nothing is confirmed."""
    causes = [finding.explanation for finding in diagnosis.findings]
    assert all(cause is not None and cause.confidence == "likely" for cause in causes)
    return [cause.text for cause in causes if cause is not None]


# What a recorder must not do.


@pytest.mark.parametrize(
    "name", [*(f"torch/{n}" for n in BARE), *(f"keras/{n}" for n in (*BARE, "eager", "graph"))]
)
def test_no_bit_is_changed(scripts: Scripts, name: str) -> None:
    side, _, script_name = name.partition("/")
    weights = [np.load(scripts.path(side) / f"{kind}_{script_name}.npy") for kind in ("bare", "with")]
    assert len(weights[0]) and weights[0].tobytes() == weights[1].tobytes()
    assert len(read_record(scripts.path(name)).steps) == STEPS


def test_the_bits_would_show_a_change(scripts: Scripts) -> None:
    changed, same = (np.load(scripts.path("torch") / f"with_{name}.npy") for name in BARE)
    assert changed.tobytes() != same.tobytes()


# Parity across frameworks.


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("keras/base", "torch/base"),
        ("keras/sum", "torch/sum"),
        ("keras/base", "keras/eager"),
        ("keras/eager", "keras/graph"),
        ("keras/graph", "torch/mapped"),
        ("torch/base", "torch/parts"),
    ],
)
def test_the_same_training_is_parity(scripts: Scripts, first: str, second: str) -> None:
    result = scripts.judged(first, second)
    assert result.verdict == "parity", result.comparisons[0].reason
    checks = {check.name: check for check in result.comparisons[0].checks}
    assert {"sample ids", "learning rate", "initial state", "first-step gradients", "gradient norm"} < set(
        checks
    )
    assert checks["final state"].deviation < 1e-14
    assert result.comparisons[0].unjudged == "not recorded: evaluation"
    found = scripts.diagnosed(first, second)
    assert found.verdict == "parity" and first_of(found) is None
    assert [stage.status for stage in found.stages] == [*["agrees"] * 11, "not recorded"]


# (what is other than in the reference, the stage that parts first, its step, words of the diagnosis)
DIFFERENT = [
    ("base", "rate", "learning rate", 0, "0.5 times"),
    ("base", "momentum", "update norm", 1, "momentum, moments"),
    ("base", "order", "sample ids", 0, "other samples"),
    ("base", "weights", "initial state", -1, "other weights"),
    (
        "base",
        "sum",
        "first gradients",
        0,
        "16 times the reference's (the number of samples, as of a sum instead of a mean)",
    ),
    (
        "sum",
        "base",
        "first gradients",
        0,
        "1/16 of the reference's (one over the number of samples, as of a mean instead of a sum)",
    ),
    ("adam", "epsilon", "update norm", 0, "epsilon"),
]


@pytest.mark.parametrize("sides", [("torch", "torch"), ("keras", "torch")])
@pytest.mark.parametrize(("ours", "theirs", "stage", "step", "words"), DIFFERENT)
def test_a_difference_is_divergent_and_named(
    scripts: Scripts, sides: tuple[str, str], ours: str, theirs: str, stage: str, step: int, words: str
) -> None:
    pair = f"{sides[0]}/{ours}", f"{sides[1]}/{theirs}"
    assert scripts.judged(*pair).verdict == "divergent"
    found = scripts.diagnosed(*pair)
    assert found.verdict == "divergent" and first_of(found) is not None
    assert (first_of(found).name, first_of(found).step) == (stage, step)
    told = " ".join([first_of(found).text, *why_of(found)])
    assert words.replace("0.5 times", "1/2 of") in told, told


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("torch/base", "torch/rate", "optimizer: learning_rate is 0.25 and 0.125"),
        ("keras/base", "torch/momentum", "optimizer: momentum is 0.875 and 0.75"),
        ("torch/adam", "keras/epsilon", "optimizer: epsilon is 9.5367431640"),
    ],
)
def test_settings_that_differ_are_named(scripts: Scripts, first: str, second: str, words: str) -> None:
    assert any(words in text for text in scripts.diagnosed(first, second).settings)
    same = scripts.diagnosed(first, f"{second.split('/')[0]}/{first.split('/')[1]}").settings
    assert not any("momentum is" in text or "epsilon is" in text for text in same)


def test_clipping_is_seen_before_it_or_named(scripts: Scripts) -> None:
    told, untold = (scripts.record(f"torch/{name}") for name in ("clipped", "clipped_untold"))
    assert (told.columns["gradient_norm"] > 0.126).all()
    assert np.allclose(untold.columns["gradient_norm"], 0.125)
    found = scripts.diagnosed("torch/clipped", "torch/clipped_untold")
    assert first_of(found) is not None and first_of(found).name == "first gradients"
    assert any("call recorder.gradients()" in text for text in why_of(found))


# What layers gave.


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("keras/pictures", "torch/pictures"),
        ("keras/pictures_jit", "torch/pictures_mapped"),
        ("keras/pictures", "keras/pictures_jit"),
    ],
)
def test_layers_give_the_same_numbers_in_either_layout(scripts: Scripts, first: str, second: str) -> None:
    """Also a layer that is called twice, in micro-batches, with passes between that only evaluate."""
    stage = stage_of(scripts.diagnosed(first, second), "layers")
    assert stage.status == "agrees" and stage.text.startswith("3 outputs at 3 steps, within"), stage.text
    taps = scripts.record(first).script_taps
    assert taps is not None and list(taps.fingerprints) == ["first", "twice", "twice#1"]


def test_a_model_that_is_part_of_another_is_seen_once(scripts: Scripts) -> None:
    """Its function is traced twice, and the other model keeps a list of its weights."""
    taps = [scripts.record(name).script_taps for name in ("keras/held", "keras/base")]
    assert taps[0] is not None and taps[1] is not None
    own = {name.rpartition("/")[2]: numbers for name, numbers in taps[0].fingerprints.items()}
    for name, due in taps[1].fingerprints.items():
        np.testing.assert_allclose(own[name][0], due[0], rtol=1e-12)
    held, base = (
        load_file(scripts.path(name) / "initial.safetensors") for name in ("keras/held", "keras/base")
    )
    assert len(held) == len(base), (sorted(held), sorted(base))


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ("keras/base", "torch/activation", "hidden is the first that differs, by 0.54 of its norm"),
        ("torch/base", "torch/activation", "hidden is the first that differs, by 0.54 of its norm"),
        ("keras/pictures", "torch/pictures_padding", "twice is the first that differs"),
    ],
)
def test_the_first_layer_that_differs_is_named(scripts: Scripts, first: str, second: str, text: str) -> None:
    found = scripts.diagnosed(first, second)
    assert first_of(found) is not None and (first_of(found).name, first_of(found).step) == ("layers", 0)
    assert first_of(found).text.startswith(text)
    assert ("the 1 before it agree, first the last of them" in first_of(found).text) == ("twice" in text)
    assert any("this layer's output is the first that differs" in why for why in why_of(found))


def test_layers_by_other_names_are_not_compared(scripts: Scripts) -> None:
    pair = [read_record(scripts.path(f"{side}/base")) for side in ("keras", "torch")]
    stage = stage_of(diagnose_recorded(*pair), "layers")
    assert stage.status == "not recorded" and "`layers` of a mapping" in stage.text


def test_a_chosen_layer_is_tapped_and_another_name_refused(scripts: Scripts, tmp_path: Path) -> None:
    taps = read_record(scripts.path("torch/parts")).script_taps
    assert taps is not None and list(taps.fingerprints) == ["1", "2"]
    assert script.chosen_layers(["a", "b", "c"], ["c", "a"]) == ["a", "c"]
    with pytest.raises(RecordError, match=r"no layer 'd'; it has a, b") as raised:
        script.chosen_layers(["a", "b"], ["d"])
    assert one_line(str(raised.value))


def test_a_cut_or_foreign_file_of_taps_is_read_to_its_end_or_named(scripts: Scripts, tmp_path: Path) -> None:
    copy = copied(scripts.path("torch/base"), tmp_path / "copy")
    path = copy / "taps" / "fingerprints.f64"
    path.write_bytes(path.read_bytes()[:-8])
    taps = read_record(copy).script_taps
    assert taps is not None and taps.steps.tolist() == list(range(STEPS - 1))
    (copy / "taps" / "names.json").write_text('["0", "0"]')
    with pytest.raises(RecordError, match="expected a list of different names"):
        read_record(copy).script_taps  # noqa: B018
    (copy / "taps" / "names.json").write_text('["0"]')
    with pytest.raises(RecordError, match="steps do not increase"):
        read_record(copy).script_taps  # noqa: B018


def test_steps_that_are_tapped() -> None:
    assert [step for step in range(70) if is_tapped(step, None)] == [*range(9), 16, 32, 64]
    assert [step for step in range(7) if is_tapped(step, 3)] == [0, 3, 6]


def test_digests_see_what_a_norm_does_not() -> None:
    random = np.random.default_rng(0)
    first = random.standard_normal((2, 3, 4))

    def digest(values: np.ndarray) -> np.ndarray:
        total, vector = values.sum(0), script_vector(values[0].size)
        moved = np.moveaxis(total, 0, -1).ravel() @ vector
        return np.array([[np.sum(values**2), total.ravel() @ vector, moved]])

    same = digest(first[::-1])  # the samples in another order
    assert deviations(digest(first), same)[0] < 1e-14
    assert deviations(digest(np.moveaxis(first, 1, -1)), digest(first))[0] < 1e-14  # channels first
    assert deviations(digest(first), digest(first[:, [1, 0, 2]]))[0] > 1e-3  # channels swapped


def test_an_output_that_is_no_number_is_not_one_that_was_not_taken(tmp_path: Path) -> None:
    writer = TapWriter(tmp_path / "taps")
    writer.write(0, {"a": (4.0, 1.0, 2.0), "b": (np.nan,) * 3, "c": (np.inf,) * 3})
    writer.write(1, {"a": (4.0, 1.0, np.nan), "b": (1.0,) * 3, "later": (1.0,) * 3})
    writer.close()
    found = read_taps(tmp_path / "taps")
    assert found is not None and list(found.fingerprints) == ["a", "b", "c"]
    a, b, c = found.fingerprints.values()
    assert deviations(a, b).tolist() == [np.inf, 0.5]
    assert deviations(b, c)[0] == 0 and np.isnan(deviations(b, c)[1])


# What was not recorded is said.


def test_what_was_not_recorded_is_not_judged(scripts: Scripts) -> None:
    result = scripts.judged("torch/base", "torch/no_ids")
    assert result.verdict == "parity"
    assert "sample ids" not in [check.name for check in result.comparisons[0].checks]
    told = result.comparisons[0].unjudged
    assert (
        told
        == "not recorded: sample ids, evaluation; gradient norm, parameter norm, update norm at 3 of 12 steps"
    )
    found = scripts.diagnosed("torch/base", "torch/no_ids")
    assert stage_of(found, "sample ids").status == "not recorded"
    assert (stage := stage_of(found, "layers")).status == "not recorded" and "taps=True" in stage.text


def test_a_number_that_is_there_is_judged(scripts: Scripts, tmp_path: Path) -> None:
    copy = copied(scripts.path("torch/no_ids"), tmp_path / "copy")
    width = len(read_record(copy).columns)
    rows = np.fromfile(copy / "steps.f64", "<f8").reshape(-1, width)
    rows[8, list(read_record(copy).columns).index("update_norm")] *= 1 + 1e-9
    rows.tofile(copy / "steps.f64")
    assert judge([read_record(scripts.path("torch/base")), read_record(copy)]).verdict == "divergent"


def test_without_an_optimizer_only_the_parameters_are_seen(scripts: Scripts) -> None:
    record = read_record(scripts.path("torch/no_optimizer"))
    assert np.isnan(record.columns["gradient_norm"]).all() and np.isnan(record.columns["learning_rate"]).all()
    assert (record.columns["update_norm"] == 0).all() and (record.columns["parameter_norm"] > 0).all()
    assert not record.has("first_gradients")


def test_other_names_are_inconclusive_and_say_what_to_do(scripts: Scripts) -> None:
    records = [read_record(scripts.path(name)) for name in ("keras/base", "torch/base")]
    result = judge(records)
    assert result.verdict == "inconclusive" and "--mapping mapping.yaml" in result.comparisons[0].reason
    assert diagnose_recorded(*records).verdict == "inconclusive"
    wrong = judge([records[0], read_record(scripts.path("torch/rate"))])
    assert wrong.verdict == "divergent"


def test_float32_needs_permuted_repetitions(scripts: Scripts) -> None:
    floors = tuple(f"torch/floor_{number}" for number in range(1, 5))
    assert scripts.judged("torch/single", "torch/floor_1").verdict == "inconclusive"
    result = judge(
        [read_record(scripts.path(name)) for name in ("torch/single", "torch/floor_1")],
        [read_record(scripts.path(name)) for name in floors],
    )
    assert result.verdict == "parity" and "noise floor" in result.comparisons[0].budget_source


# The commands.


def test_the_commands_take_records(scripts: Scripts, parity: Cli, tmp_path: Path) -> None:
    mapping = ("--mapping", str(scripts.folder / "mapping.yaml"))
    keras, torch, other = (str(scripts.path(name)) for name in ("keras/base", "torch/base", "torch/rate"))
    code, out, err = parity("compare", keras, torch, *mapping, "--out", tmp_path / "report")
    assert code == 0, err
    assert "the same samples at every step (192 samples)" in out
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Recorded scripts have no batch plan" in page
    assert json.loads((tmp_path / "report" / "report.json").read_text())["spec"]["kind"] == "script"
    code, out, err = parity("diagnose", keras, other, *mapping, "--json", tmp_path / "found.json")
    assert code == 1, err
    assert "at step 0\n       learning rate: " in out and "cannot be replayed" in out
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["format"], found["schema_version"], found["source"]) == ("parity-diagnosis", 2, "records")
    assert (found["findings"][0]["stage"], found["exit_code"]) == ("learning rate", 1)


def test_the_page_of_a_diagnosis_shows_stages_and_curves(tmp_path: Path, parity: Cli) -> None:
    write = the_writer_of_the_page()
    for name, losses in (("a<b>", [3.0, 2.0, 1.0]), ("c", [3.0, 2.5])):
        write(tmp_path / name, losses, 4)
    (tmp_path / "c" / "summary.json").unlink()  # it was killed
    code, out, err = parity("diagnose", "a<b>", "c", "--out", "told")
    assert code == 1, err
    assert "report: told/diagnosis.html" in out
    assert json.loads((tmp_path / "told" / "diagnosis.json").read_text())["verdict"] == "divergent"
    page = rendered(tmp_path / "told" / "diagnosis.html", tmp_path)
    assert page.attribute("data-plots") == ["drawn"]
    assert page.attribute("data-figure") == ["figure-loss_sum"]
    told = dict(zip(page.attribute("data-stage"), page.attribute("data-status"), strict=True))
    assert told["loss"] == "differs" and told["count"] == "agrees" and told["layers"] == "not recorded"
    assert (
        "They diverge at step 1" in page.text and "2 and 2.5" in page.text and "did not finish" in page.text
    )
    assert "a<b> (jax script x1)" in page.text


def test_what_needs_a_spec_says_so_in_one_line(scripts: Scripts, parity: Cli, tmp_path: Path) -> None:
    torch = str(scripts.path("torch/base"))
    for command in (
        ("compare", "--baseline", torch, str(scripts.path("torch/rate"))),
        ("diagnose", torch, str(scripts.path("torch/rate")), "--inside-a", "a:b"),
    ):
        assert "recorded script" in parity.refused(*command)
    ours = Run.of(tiny_spec(), TORCH).write(tmp_path / "ours")
    with pytest.raises(NotComparableError, match="the other is a recorded script"):
        judge([ours, read_record(scripts.path("torch/base"))])
    with pytest.raises(RecordError, match="was trained from a spec"):
        mapped(ours, read_mapping(scripts.folder / "mapping.yaml"))


def test_scripts_of_another_name_are_not_compared(scripts: Scripts) -> None:
    with pytest.raises(NotComparableError, match="name is 'script' and 'another'"):
        scripts.judged("torch/base", "torch/named")


# What the pages say.


@pytest.mark.parametrize(
    ("first", "second"), [("torch/base", "torch/runs/torch"), ("keras/base", "keras/runs/tensorflow")]
)
def test_the_pieces_of_the_page_record(scripts: Scripts, first: str, second: str) -> None:
    assert scripts.judged(first, second).verdict == "parity"


def test_the_callback_of_the_page_records(scripts: Scripts) -> None:
    record = read_record(scripts.path("keras/runs/keras"))
    assert record.columns["count"].tolist() == [32.0] * STEPS
    assert record.summary is not None and record.has("final") and not (record.folder / "sample_ids").exists()


def the_writer_of_the_page() -> Callable[[Path, list[float], int], None]:
    text = (ROOT / "docs" / "reference" / "record.md").read_text()
    names: dict = {}
    exec(text.partition("```python\n")[2].partition("```")[0], names)
    return names["write"]


def test_another_tool_writes_a_record_by_the_page(tmp_path: Path, parity: Cli) -> None:
    write = the_writer_of_the_page()
    for name, losses in (("a", [3.0, 2.0, 1.0]), ("b", [3.0, 2.0, 1.0]), ("c", [3.0, 2.0, 1.5])):
        write(tmp_path / name, losses, 4)
    code, out, _ = parity("compare", "a", "b")
    assert code == 0 and "not recorded: sample ids, learning rate, gradient norm" in out.replace("\n", " ")
    assert parity("compare", "a", "c")[0] == 1
    assert "at step 2\n       loss: " in parity("diagnose", "a", "c")[1]
    assert parity("steps", "a", "--format", "csv")[1].splitlines()[1].startswith("0,3.0,12.0,4.0,nan,")


def test_what_another_tool_adds_is_compared(tmp_path: Path) -> None:
    write = the_writer_of_the_page()
    for name, swapped in (("a", 0), ("b", 0), ("c", 1)):
        folder = tmp_path / name
        write(folder, [3.0, 2.0], 2)
        (folder / "sample_ids").mkdir()
        words = [0, 0, 2, 5, 6, 1, 0, 2, 7, 8 + swapped]
        (folder / "sample_ids" / "replica_0.ids").write_bytes(struct.pack("<10q", *words))
        for which in ("initial", "first_gradients", "final"):
            step = {"step": np.array(2)} if which == "final" else {}
            tensors = {"tensors/kernel": np.ones((2, 3)) + swapped, **step}
            save_file(tensors, folder / f"{which}.safetensors")
    a, b, c = (read_record(tmp_path / name) for name in "abc")
    same, other = judge([a, b, c]).comparisons
    assert same.verdict == "parity"
    failed = {check.name: check.where for check in other.checks if not check.passed}
    assert failed["sample ids"] == "step 1"
    assert {"initial state", "first-step gradients", "final state"} < set(failed)


def test_a_file_that_does_not_follow_the_page_is_named(tmp_path: Path) -> None:
    the_writer_of_the_page()(tmp_path / "a", [3.0, 2.0], 2)
    (tmp_path / "a" / "sample_ids").mkdir()
    (tmp_path / "a" / "sample_ids" / "replica_0.ids").write_bytes(struct.pack("<5q", 0, 0, 2, 5, 6))
    with pytest.raises(RecordError, match="expected the sample ids of replica 0 at step 1, found no more"):
        read_record(tmp_path / "a").received  # noqa: B018


def test_names_inside_another_module_are_the_same_names(tmp_path: Path) -> None:
    write = the_writer_of_the_page()
    for name, start in (("a", ""), ("b", "network."), ("c", "network.")):
        write(tmp_path / name, [1.0], 1)
        header = json.loads((tmp_path / name / "header.json").read_text())
        edit_json(tmp_path / name / "header.json", spec=header["spec"] | {"naming": "torch"})
        tensors = {f"tensors/{start}0.{part}": np.full(2, 1.0 + (name == "c")) for part in ("weight", "bias")}
        save_file(tensors, tmp_path / name / "initial.safetensors")
    a, b, c = (read_record(tmp_path / name) for name in "abc")
    assert judge([a, b]).verdict == "inconclusive"
    assert judge(unwrapped([a, b])).verdict == "parity"
    assert judge(unwrapped([a, c])).verdict == "divergent"
    assert judge(unwrapped([b, c])).verdict == "divergent"


def test_a_schedule_one_step_ahead_is_named(tmp_path: Path) -> None:
    write = the_writer_of_the_page()
    for name, ahead in (("a", 0), ("b", 1)):
        write(tmp_path / name, [1.0] * 6, 1)
        rows = np.fromfile(tmp_path / name / "steps.f64", "<f8").reshape(-1, 9)
        rows[:, 3] = 0.1 / (1 + np.arange(6) + ahead)
        rows.tofile(tmp_path / name / "steps.f64")
    a, b = (read_record(tmp_path / name) for name in "ab")
    found = diagnose_recorded(a, b)
    assert first_of(found) is not None and first_of(found).name == "learning rate"
    assert "the candidate's schedule is one step ahead" in first_of(found).text
    back = first_of(diagnose_recorded(b, a))
    assert back is not None and "the reference's schedule is one step ahead" in back.text


HALVED = [0.5 ** (step // 10) for step in range(40)]


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        (
            HALVED,
            HALVED[3:] + [HALVED[-1]] * 3,
            "B schedule is 3 steps ahead; A changes at 10, 20, 30, B at 7, 17, 27",
        ),
        (
            HALVED,
            [1.0] * 5 + HALVED[:-5],
            "A schedule is 5 steps ahead; A changes at 10, 20, 30, B at 15, 25, 35",
        ),
        (
            [0.9**n for n in range(40)],
            [0.9 ** (4 * n) for n in range(40)],
            "B schedule goes 4 times as fast: its scheduler",
        ),
        (
            [0.9**n for n in range(40)],
            [0.9 ** (n // 4) for n in range(40)],
            "A schedule goes 4 times as fast: its scheduler",
        ),
        (
            [n / 24 for n in range(24)],
            [n // 6 / 24 for n in range(24)],
            "A schedule goes 6 times as fast: its scheduler",
        ),
        (
            [0.9 ** (n / 4) for n in range(40)],
            [0.9 ** (n // 4) for n in range(40)],
            "B is a staircase, which holds for 4 steps each what the other makes",
        ),
        ([1.0] * 30 + [0.1] * 10, [1.0] * 40, "A changes at 30, B never"),
        ([0.9**n for n in range(40)], [0.8**n for n in range(40)], ""),
        (HALVED, [2 * rate for rate in HALVED], ""),
    ],
)
def test_rates_at_another_pace_are_named(ours: list[float], theirs: list[float], told: str) -> None:
    said = pace_in_words(ours, theirs, 1e-9, ("A", "B"))
    assert said.startswith(f": {told}" if told else "") and bool(said) == bool(told), said


# Other people's trainers.


@pytest.mark.slow
@pytest.mark.parametrize("library", ["lightning", "transformers", "accelerate"])
def test_callbacks_record_what_a_loop_by_hand_does(library: str, tmp_path: Path) -> None:
    ended = run_scripts("library", library, str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    for parts in (1, 2):
        bare, recorded = (np.load(tmp_path / f"{kind}_{parts}.npy") for kind in ("bare", "with"))
        assert bare.tobytes() == recorded.tobytes()
        pair = unwrapped([read_record(tmp_path / f"{kind}_{parts}") for kind in ("hand", "run")])
        assert pair[1].columns["count"].tolist() == [BATCH] * STEPS
        comparison = judge(pair).comparisons[0]
        assert (comparison.verdict, comparison.unjudged) == ("parity", "not recorded: evaluation")
        found = diagnose_recorded(pair[0], pair[1])
        assert first_of(found) is None and stage_of(found, "layers").status == "agrees"
    assert (tmp_path / "runs").is_dir() == (library == "accelerate")
    if library == "lightning":
        by_hand, manual = (
            read_record(tmp_path / name).columns["gradient_norm"] for name in ("hand_1", "manual")
        )
        assert manual[0] == pytest.approx(by_hand[0], rel=1e-12) and len(manual) == 2


@pytest.mark.slow
def test_ranks_are_recorded_as_one(scripts: Scripts, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "parity_tests.recorded.rank_script", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=_ENVIRONMENT, timeout=500)
    assert ended.returncode == 0, ended.stderr
    record = read_record(tmp_path / "ranks")
    comparison = judge([read_record(scripts.path("torch/base")), record]).comparisons[0]
    assert (comparison.verdict, comparison.unjudged) == ("parity", "not recorded: evaluation")
    assert isinstance(record.run_info, ScriptInfo) and record.run_info.world_size == 2
    found = diagnose_recorded(read_record(scripts.path("torch/base")), record)
    assert stage_of(found, "layers").status == "agrees"


# Ids of what gives the batches.


@pytest.mark.sweep
@pytest.mark.parametrize("side", ["torch", "keras"])
def test_ids_are_those_that_the_batches_were_made_of(side: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "parity_tests.recorded.loaders", str(tmp_path), side]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=_ENVIRONMENT, timeout=300)
    assert ended.returncode == 0, ended.stderr
    for name, due in json.loads(ended.stdout.splitlines()[-1]).items():
        received = read_record(tmp_path / name).received
        assert [received.ids(step)[0].tolist() for step in range(len(due))] == due
        assert due[0] != sorted(due[0])


# Killed, cut short, damaged.


def test_a_killed_script_leaves_its_whole_steps(scripts: Scripts, tmp_path: Path) -> None:
    ended = run_scripts("torch", str(tmp_path / "killed"), "6")
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    record = read_record(tmp_path / "killed")
    assert record.steps.tolist() == list(range(7)) and record.summary is None
    assert [ids.tolist() for ids in received_ids(record)[0]] == [batch(step).tolist() for step in range(7)]
    whole = scripts.record("torch/base")
    for name in ("loss_sum", "gradient_norm", "update_norm"):
        assert np.array_equal(record.columns[name], whole.columns[name][:7])
    with pytest.raises(NotComparableError, match=r"did not finish \(7 steps, and its recorder's finish\(\)"):
        judge([whole, record])
    found = diagnose_recorded(whole, read_record(tmp_path / "killed"))
    assert any("did not finish" in note for note in found.notes)
    assert any("7 that both have" in note for note in found.notes)
    assert stage_of(found, "loss").status == "agrees"


def test_a_damaged_description_is_named(scripts: Scripts, tmp_path: Path) -> None:
    copy = copied(scripts.path("torch/base"), tmp_path / "copy")
    described = json.loads((copy / "header.json").read_text())["spec"]
    edit_json(copy / "header.json", spec=described | {"name": "else"})
    with pytest.raises(RecordError, match="spec_hash is not that"):
        read_record(copy)
    edit_json(copy / "header.json", spec=described | {"precision": "float31"})
    with pytest.raises(RecordError, match=r"spec\.precision"):
        read_record(copy)


def copied(source: Path, target: Path) -> Path:
    target.mkdir()
    for path in source.rglob("*"):
        if path.is_file():
            place = target / path.relative_to(source)
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(path.read_bytes())
    return target


def test_factors() -> None:
    ours = np.array([1.0, -2.0, 3.0])
    assert factor_between(ours, 4 * ours, 1e-9) == 4
    assert factor_between(ours, ours, 1e-9) is None
    assert factor_between(ours, ours**2, 1e-9) is None
    assert factor_between(ours[:0], ours[:0], 1e-9) is None
    known = [(4.0, "added up"), (0.25, "averaged twice")]
    assert in_words(3.9999, known) == "4 times the reference's (added up)"
    assert in_words(0.25, known) == "1/4 of the reference's (averaged twice)"
    assert (
        in_words(0.3, known) == "0.3 times the reference's" and in_words(1.5) == "1.5 times the reference's"
    )


def test_the_scripts_are_what_they_should_be() -> None:
    ids = np.concatenate([batch(step) for step in range(SAMPLES // BATCH)])
    assert sorted(ids.tolist()) == list(range(SAMPLES))
    assert set(batch(0)) != set(batch(0, 1))
    assert script.OUTLINE == "outline.json"
