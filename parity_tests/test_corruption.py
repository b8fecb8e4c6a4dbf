"""Files that are spoiled are refused, passed over or found to differ; and what says so would also say otherwise."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parity.common.base.errors import RecordError, SpecError
from parity.common.record.header import STEP_FIELDS
from parity_tests.corruption import (
    GOOD,
    KINDS,
    RESULTS,
    TOTAL,
    Material,
    Outcome,
    bounded,
    look_at_checkpoint,
    look_at_record,
    outcome_of,
    outcomes,
    unchanged,
)
from parity_tests.tables import corruption as corruption_table

# Of the default tests; 8 and the numbers of each kind have little in common, so that each way comes up.
STRIDE = 8


def _all_good(found: list[Outcome]) -> None:
    bad = [outcome for outcome in found if outcome.result not in GOOD]
    assert not bad, "\n".join(map(str, bad))


def test_some_corruptions_are_met(tmp_path: Path) -> None:
    found = outcomes(tmp_path, stride=STRIDE)
    assert len(found) == len(range(0, TOTAL, STRIDE))
    _all_good(found)
    assert {outcome.kind.split()[-1] for outcome in found} == {
        "spec",
        "record",
        "checkpoint",
        "placement",
        "mapping",
    }
    assert {outcome.result for outcome in found} >= {"refused", "recovered", "divergent"}


@pytest.mark.exhaustive
def test_all_corruptions_are_met(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    found = outcomes(tmp_path)
    path = request.config.getoption("--corruption", default=None)
    if path is not None:
        corruption_table.write(path, found)
    assert [outcome.number for outcome in found] == list(range(TOTAL)) and sum(KINDS.values()) == TOTAL
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


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda folder: None, True),
        (_scaled("seconds", 9.0), True),
        (_scaled("loss_sum", 1 + 1e-14), True),
        (_scaled("loss_sum", 1 + 1e-11), False),
        (_scaled("update_norm", 1.1), False),
        (_scaled("learning_rate", 1 + 1e-15), False),
    ],
)
def test_the_independent_look_sees_what_is_judged(
    material: Material, tmp_path: Path, change: Callable[[Path], None], same: bool
) -> None:
    whole, corrupted = material.candidates[0], tmp_path / "record"
    shutil.copytree(whole, corrupted)
    change(corrupted)
    assert unchanged(corrupted, whole) == same
    # A judge who says parity of everything would be found out, and the real one is right.
    blind = look_at_record(material.reference, corrupted, whole, lambda *_: ("parity", ""))
    assert blind[0] == ("unseen" if same else "wrong")
    assert look_at_record(material.reference, corrupted, whole)[0] == ("unseen" if same else "divergent")


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
    corruption_table.write(tmp_path / "table.md", found)
    text = (tmp_path / "table.md").read_text()
    assert "**1 of 2 answers are good ones.**" in text
    assert "a \\| b?&lt;script&gt;" in text and "<script>" not in text and "\\`x\\`" in text
    assert "wrong" in text
