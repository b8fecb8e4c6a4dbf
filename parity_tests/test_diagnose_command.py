"""`parity diagnose`: one line for what cannot be diagnosed, exit codes, and what it leaves where."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from parity.common.api import records
from parity.common.base.errors import MissingPackageError, RunError
from parity.common.commands import diagnose as command
from parity.common.diagnosis.result import Diagnosis, Verdict
from parity.common.execution.worker import Worker
from parity.common.parity.result import judge, read_session
from parity.common.report.html.comparison import write_html
from parity.common.spec import Instrumentation, Placement, RunOptions
from parity_tests.helpers.commands import Cli
from parity_tests.helpers.matrix import config
from parity_tests.helpers.records import DDP, MIRRORED, TORCH, Run, recipe_spec, tiny_spec
from parity_tests.helpers.run_cache import GivenWorkers
from parity_tests.test_report_diagnosis import synthetic
from parity_tests.test_report_html import Page

FSDP2 = Placement(framework="torch", strategy="fsdp2", replicas=2)
FAULT = "parity_tests.faults.torch:square_dense_kernel_transposed"
SMALL = recipe_spec("digits_mlp", "steps=3", "data.eval_samples=16")


@pytest.fixture
def parity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.chdir(tmp_path)
    return Cli(tmp_path, capsys)


def written(folder: Path, *assignments: str, placement: Placement = TORCH, finished: bool = True) -> Path:
    """A record without a framework."""
    return Run.of(tiny_spec(*assignments), placement).write(folder, finished).folder


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return written(tmp_path / "a"), written(tmp_path / "b", placement=DDP)


def test_what_is_no_finished_run_of_the_same_steps_is_one_line(parity: Cli, tmp_path: Path) -> None:
    a, b = written(tmp_path / "a"), written(tmp_path / "b", placement=DDP, finished=False)
    short = written(tmp_path / "short", placement=config(DDP, stop_at_step=3))
    assert "did not finish (6 of 6 steps)" in parity.refused("diagnose", a, b)
    assert "did not finish" in parity.refused("diagnose", b, a)
    assert "unequal step sets" in parity.refused("diagnose", a, short)
    assert "compared with itself" in parity.refused("diagnose", a, a)
    assert "absent" in parity.refused("diagnose", a, tmp_path / "absent")


def test_runs_of_other_specs_are_told_by_their_fields(parity: Cli, tmp_path: Path) -> None:
    a = written(tmp_path / "a")
    b = written(tmp_path / "b", "optimizer.momentum=0.8", "seed=3", placement=DDP)
    error = parity.refused("diagnose", a, b)
    assert "differ because their specs do" in error
    assert "optimizer.momentum is 0.9 and 0.8" in error
    assert "seed is 0 and 3" in error
    assert "run both from one spec" in error
    many = [f"optimizer.{text}" for text in ("momentum=0.8", "weight_decay=0.1", "nesterov=true")]
    more = ["seed=3", "global_batch_size=8", "data.eval_samples=4", "schedule.warmup_steps=3", "data.seed=1"]
    c = written(tmp_path / "c", *many, *more[:4], placement=DDP)
    assert ", and 1 more; run both" in parity.refused("diagnose", a, c)


@pytest.mark.parametrize("flag", ["--context-a", "--context-b", "--inside-b"])
def test_a_context_manager_is_named_with_its_module(parity: Cli, pair: tuple[Path, Path], flag: str) -> None:
    error = parity.refused("diagnose", *pair, flag, "a_function")
    assert (
        flag.replace("inside", "context") in error and "'a_function'" in error and "MODULE:FUNCTION" in error
    )


def test_replays_are_kept_in_a_folder_of_their_own(
    parity: Cli, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    assert "--keep needs --out" in parity.refused("diagnose", *pair, "--keep")
    (tmp_path / "out" / "replays").mkdir(parents=True)
    assert "there already" in parity.refused("diagnose", *pair, "--keep", "--out", tmp_path / "out")


def test_a_missing_framework_is_named_with_the_command_that_installs_it(
    parity: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = written(tmp_path / "a"), written(tmp_path / "b", placement=MIRRORED)

    def absent(framework: str) -> None:
        if framework == "tensorflow":
            raise MissingPackageError("tensorflow is not installed; pip install 'tf-torch-parity[tf]'")

    monkeypatch.setattr(records, "require", absent)
    assert "tensorflow is not installed" in parity.refused("diagnose", a, b)


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """One process for all runs and replays of this file."""
    with Worker("torch", 1, tmp_path_factory.mktemp("worker") / "torch.log") as started:
        yield started


@pytest.fixture(scope="module")
def runs(worker: Worker, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One as it should be, and one with a fault."""
    folder = tmp_path_factory.mktemp("runs")
    insides = [Instrumentation(), Instrumentation(context=FAULT)]
    return [
        worker.train(SMALL, TORCH, folder / str(n), RunOptions(), inside) for n, inside in enumerate(insides)
    ]


@pytest.fixture
def shared(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replays by the worker that there is."""
    monkeypatch.setattr(records, "Workers", lambda logs: GivenWorkers(lambda placement: worker))


def test_a_fault_is_diagnosed_from_the_command_line(
    parity: Cli, runs: list[Path], shared: None, tmp_path: Path
) -> None:
    plain, faulty = runs
    kept = ("--out", "out", "--json", "all.json", "--keep")
    code, out, err = parity("diagnose", plain, faulty, "--context-b", FAULT, *kept)
    assert code == 1, err
    assert "forward/dense_1" in out
    assert "◀ finding 1, the first" in out
    assert "kernel_transposed" in out
    assert "report: out/diagnosis.html\nnext: " in out
    assert "replaying torch single x1" in err
    said = json.loads((tmp_path / "all.json").read_text())
    assert said == json.loads((tmp_path / "out" / "diagnosis.json").read_text())
    assert (said["verdict"], said["when"]["step"]) == ("divergent", 0)
    assert Page(tmp_path / "out" / "diagnosis.html").attribute("data-verdict") == ["divergent"]
    assert any((tmp_path / "out" / "replays").rglob("replica_0.safetensors"))


@pytest.mark.parametrize(("verdict", "expected"), [("inconclusive", 3), ("divergent", 1), ("parity", 0)])
def test_every_verdict_has_its_exit_code_and_its_reports(
    parity: Cli,
    pair: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verdict: Verdict,
    expected: int,
) -> None:
    """Also where rounding takes either run as far as the two diverge."""
    found = synthetic()
    if verdict != "divergent":
        found = replace(found, verdict=verdict, findings=(), when=found.when if expected else None)
    monkeypatch.setattr(records, "diagnosis_of", lambda *_: found)
    code, out, err = parity("diagnose", *pair, "--out", "out", "--json", "all.json")
    assert code == expected, err
    assert f" {verdict}  " in out and "report: out/diagnosis.html" in out
    data = json.loads((tmp_path / "out" / "diagnosis.json").read_text())
    assert (data["verdict"], data["exit_code"]) == (verdict, expected)
    assert data == json.loads((tmp_path / "all.json").read_text())
    assert Page(tmp_path / "out" / "diagnosis.html").attribute("data-verdict") == [verdict]


@pytest.mark.exhaustive
def test_runs_that_agree_end_with_0_and_leave_nothing(
    parity: Cli, worker: Worker, runs: list[Path], shared: None, tmp_path: Path
) -> None:
    again = worker.train(SMALL, TORCH, tmp_path / "again")
    before = parity.listing()
    code, out, _ = parity("diagnose", runs[0], again)
    assert code == 0
    assert out.startswith("✓ parity  digits_mlp, torch single x1 against torch single x1\n")
    assert "tensors, as trained equal" in out
    assert parity.listing() == before


def divergent_session(folder: Path) -> None:
    """Records of three runs, of which both candidates are off."""
    run = Run.of(tiny_spec(), TORCH)
    run.write(folder / "runs" / "00_torch_single_x1")
    for number, placement in enumerate((DDP, FSDP2), start=1):
        other = run.copy(placement)
        other.column("loss_sum")[2] *= 1.5
        other.write(folder / "runs" / f"{number:02d}_{placement.label.replace(' ', '_')}")


def test_after_a_run_the_first_of_each_framework_is_diagnosed_and_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    divergent_session(tmp_path)
    result = read_session(tmp_path)
    asked = []

    def diagnosed(reference: object, candidate: object, *_: object) -> Diagnosis:
        asked.append((reference, candidate))
        return synthetic()

    monkeypatch.setattr(records, "diagnosis_of", diagnosed)
    command.after_run(result, tmp_path)
    assert asked == [(result.records[0], result.records[1])]
    out = capsys.readouterr().out
    assert f"report: {tmp_path / 'diagnosis_1.html'}" in out
    assert f"torch fsdp2 x2 differs, too: parity diagnose {result.records[0].folder}" in out
    assert (tmp_path / "diagnosis_1.json").exists()
    write_html(result, tmp_path / "report.html")
    links = Page(tmp_path / "report.html").attribute("href")
    assert [link for link in links if ".html" in link] == ["diagnosis_1.html"]


def test_a_diagnosis_that_fails_says_so_and_leaves_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    divergent_session(tmp_path)

    def failed(*_: object, **__: object) -> Diagnosis:
        raise RunError("torch ddp x2: no memory")

    monkeypatch.setattr(records, "diagnosis_of", failed)
    command.after_run(read_session(tmp_path), tmp_path)
    assert "parity: torch ddp x2 was not diagnosed: torch ddp x2: no memory" in capsys.readouterr().err
    assert not list(tmp_path.glob("diagnosis_*"))


def test_parity_leaves_nothing_to_diagnose(tmp_path: Path) -> None:
    run = Run.of(tiny_spec(), TORCH)
    result = judge([run.write(tmp_path / "0"), run.copy(DDP).write(tmp_path / "1")])
    command.after_run(result, tmp_path)
    assert not list(tmp_path.glob("diagnosis_*"))
