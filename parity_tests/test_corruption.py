"""Files that are spoiled are refused, passed over or found to differ; and what says so would also say otherwise."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from parity.common.base.errors import RecordError, SpecError
from parity.common.record.header import STEP_FIELDS
from parity.common.state.canonical import load_state, save_state
from parity_tests import corruption
from parity_tests.corruption import (
    GOOD,
    RESULTS,
    SEED,
    Material,
    Outcome,
    bounded,
    look_at_checkpoint,
    look_at_pair,
    look_at_record,
    outcome_of,
    outcomes,
)
from parity_tests.helpers.fuzz_pairs import PairCase
from parity_tests.helpers.records import TORCH
from parity_tests.oracle import relation
from parity_tests.tables import corruption as corruption_table

KINDS = {"JSON spec", "YAML spec", "record", "checkpoint", "placement", "mapping", "pair of records", "flags"}
FEW = 96  # three rounds of all kinds


@pytest.mark.slow
def _all_good(found: list[Outcome]) -> None:
    bad = [outcome for outcome in found if outcome.result not in GOOD]
    assert not bad, "\n".join(map(str, bad))


def test_some_inputs_are_met(tmp_path: Path) -> None:
    found = outcomes(tmp_path, SEED, FEW)
    assert len(found) == FEW
    _all_good(found)
    assert {outcome.kind for outcome in found} == KINDS
    assert {outcome.result for outcome in found} >= {"refused", "recovered", "divergent", "parity"}


@pytest.mark.exhaustive
@pytest.mark.timeout(2 * 3600)
def test_many_inputs_are_met(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    config = request.config
    seed, count = config.getoption("--inputs-seed"), config.getoption("--inputs")
    found = outcomes(tmp_path, seed, count)
    path = config.getoption("--corruption")
    if path is not None:
        corruption_table.write(path, found, seed)
    assert len(found) == count
    _all_good(found)
    # None of the checks is one that nothing comes to.
    assert {outcome.result for outcome in found} == set(GOOD)


def _raise(error: BaseException) -> Callable[[], tuple[str, str]]:
    def look() -> tuple[str, str]:
        raise error

    return look


def _busy() -> tuple[str, str]:
    while True:
        pass


def _waiting() -> tuple[str, str]:
    time.sleep(600)
    return "refused", ""


@pytest.mark.parametrize(
    ("look", "result"),
    [
        (lambda: ("unseen", ""), "unseen"),
        (_raise(SpecError("a/b.yaml: not YAML")), "refused"),
        (_raise(SpecError("two\nlines")), "unclear"),
        (_raise(SpecError("\x1b[31mred")), "unclear"),
        (_raise(SpecError("")), "unclear"),
        (_raise(RecordError("x" * 5000)), "unclear"),
        (_raise(RecordError("/where" * 500)), "refused"),
        (_raise(KeyError("loss")), "traceback"),
        (_raise(RecursionError()), "traceback"),
        (_raise(MemoryError()), "memory"),
    ],
)
def test_what_is_not_clear_is_told_apart(look: Callable[[], tuple[str, str]], result: str) -> None:
    assert outcome_of(0, "spec", "", look, "/where").result == result
    assert result in RESULTS


@pytest.mark.parametrize("look", [_busy, _waiting])
def test_what_does_not_end_is_ended(look: Callable[[], tuple[str, str]]) -> None:
    def limited() -> tuple[str, str]:
        with bounded(0.05, 0.1):
            return look()

    # What is in the outcome's own bounds is ended by the nearer ones.
    assert outcome_of(0, "spec", "", limited, "/where").result == "hang"


def test_both_limits_at_once_end_it_once() -> None:
    before = signal.getsignal(signal.SIGPROF), signal.getitimer(signal.ITIMER_PROF)

    def look() -> tuple[str, str]:
        try:
            signal.raise_signal(signal.SIGALRM)
        finally:
            signal.raise_signal(signal.SIGPROF)
        return "unseen", ""

    with pytest.raises(corruption._TimeOver) as caught, bounded(10):
        look()
    assert caught.value.__context__ is None
    assert before == (signal.getsignal(signal.SIGPROF), signal.getitimer(signal.ITIMER_PROF))


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    return Material(tmp_path_factory.mktemp("material"))


def _scaled(name: str, factor: float) -> Callable[[Path], None]:
    """A column of steps.f64, at step 2, times a factor."""

    def change(folder: Path) -> None:
        rows = np.fromfile(folder / "steps.f64").reshape(-1, 1 + len(STEP_FIELDS))
        rows[2, 1 + STEP_FIELDS.index(name)] *= factor
        rows.tofile(folder / "steps.f64")

    return change


def _floats(folder: Path) -> None:
    state = load_state(folder / "final.safetensors")
    name = sorted(state)[0]
    save_state(folder / "final.safetensors", {**state, name: state[name].astype(np.float32)})


def _violation(folder: Path) -> None:
    (folder / "violations").mkdir(exist_ok=True)
    line = {"step": 1, "name": "loss finite", "text": "the loss is nan", "replica": 0}
    (folder / "violations" / "replica_0.jsonl").write_text(json.dumps(line) + "\n")


@pytest.mark.parametrize(
    ("change", "due"),
    [
        (lambda folder: None, "near"),  # the samples are split among replicas
        (_scaled("seconds", 9.0), "near"),
        (_scaled("loss_sum", 1 + 1e-14), "near"),
        (_scaled("loss_sum", 1 + 1e-11), "apart"),
        (_scaled("loss_sum", np.nan), "apart"),
        (_scaled("update_norm", 1.1), "apart"),
        (_scaled("learning_rate", 1 + 1e-15), "apart"),
        (_floats, "apart"),
        (_violation, "apart"),
        (lambda folder: (folder / "sample_ids" / "replica_0.ids").write_bytes(b""), "apart"),
    ],
)
def test_the_oracle_sees_what_is_judged(
    material: Material, tmp_path: Path, change: Callable[[Path], None], due: str
) -> None:
    corrupted = tmp_path / "record"
    shutil.copytree(material.candidates[0], corrupted)
    change(corrupted)
    assert relation(material.reference, corrupted) == due
    # A judge who says parity of everything would be found out.
    blind = look_at_record(material.reference, corrupted, lambda *_: ("parity", ""))
    assert blind[0] == ("wrong" if due == "apart" else "unseen")


def test_a_judge_who_sees_differences_everywhere_is_found_out(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert relation(material.reference, material.reference) == "equal"
    same = PairCase("float64", TORCH, noisy=False, floor=False, both=(), candidate=())
    assert look_at_pair(same, tmp_path / "right")[0] == "parity"
    monkeypatch.setattr(
        corruption,
        "judge",
        lambda *_: SimpleNamespace(comparisons=[SimpleNamespace(verdict="divergent", reason="")]),
    )
    assert look_at_pair(same, tmp_path / "blind")[0] == "wrong"


def test_a_checkpoint_of_another_run_would_be_found_out(material: Material, tmp_path: Path) -> None:
    other = Material(tmp_path).run
    assert look_at_checkpoint(other, material.run)[0] in ("unseen", "wrong")
    assert look_at_checkpoint(material.run, material.run)[0] == "unseen"
    latest = sorted((other / "checkpoints").iterdir())[-1]
    shutil.rmtree(latest)
    shutil.copytree(material.run / "checkpoints" / "step_00000003", latest)
    # It is whole, and bit for bit what was saved: of step 3, whatever its name says.
    assert look_at_checkpoint(other, material.run)[0] == "unseen"


def test_the_table_holds_what_anyone_may_have_written(tmp_path: Path) -> None:
    found = [
        Outcome(0, "record", "a | b\n<script>", "refused", "`x`"),
        Outcome(1, "record", "c", "wrong", "d"),
    ]
    corruption_table.write(tmp_path / "table.md", found, 1)
    text = (tmp_path / "table.md").read_text()
    assert "**1 of 2 answers are good ones.**" in text
    assert "a \\| b?&lt;script&gt;" in text and "<script>" not in text and "\\`x\\`" in text
    assert "wrong" in text
