"""Regressions between versions: planted slow-downs and changed numbers are seen, honest noise is not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from parity.common.base.errors import NotComparableError, RecordError
from parity.common.parity.baseline import BaselineResult, Change, compare_baseline
from parity.common.record import read_record
from parity.common.spec import Placement, TrainSpec
from parity_tests.helpers.records import DDP, TORCH, Run, edit_json, one_line, tiny_spec

STEPS = 30
SPEC = tiny_spec("data.train_samples=32", "global_batch_size=32", f"steps={STEPS}")
FLOAT32 = tiny_spec("data.train_samples=32", "global_batch_size=32", f"steps={STEPS}", "precision=float32")


def set_seconds(folder: Path, seconds: np.ndarray) -> None:
    """Replace the step times of a record on disk."""
    record, path = read_record(folder), folder / "steps.f64"
    rows = np.fromfile(path, "<f8").reshape(len(record.steps), -1)
    columns = json.loads((folder / "header.json").read_text())["columns"]
    rows[:, columns.index("seconds")] = seconds
    rows.tofile(path)


def session(
    folder: Path,
    slower: float = 1.0,
    seed: int = 0,
    rounds: int = 5,
    noise: float = 0.01,
    placements: tuple[Placement, ...] = (TORCH,),
    spec: TrainSpec = SPEC,
    loss_factor: float = 1.0,
) -> Path:
    """A session as `parity run` leaves it, whose steps take `slower` times 10 ms."""
    random = np.random.default_rng([3, seed])
    for placement in placements:
        run = Run.of(spec, placement)
        run.column("loss_sum")[:] *= loss_factor
        first = run.write(folder / "runs" / placement.label)
        for number in range(rounds):
            timed = folder / "timing" / f"round_{number}" / placement.label
            shutil.copytree(first.folder, timed)
            drift = np.exp(noise * random.standard_normal())
            set_seconds(timed, 0.01 * slower * drift * np.exp(3 * noise * random.standard_normal(STEPS)))
    return folder


def compared(tmp_path: Path, **new: object) -> tuple[BaselineResult, Change]:
    result = compare_baseline(session(tmp_path / "old"), session(tmp_path / "new", seed=1, **new))  # type: ignore[arg-type]
    return result, result.changes[0]


# --- speed ---


def test_a_planted_slow_down_of_a_tenth_is_a_regression(tmp_path: Path) -> None:
    result, change = compared(tmp_path, slower=1.1)
    assert (change.speed, result.exit_code) == ("slower", 1)
    assert change.ratio is not None and change.ratio.median == pytest.approx(1 / 1.1, abs=0.02)
    assert "slower, more than 5.0%" in change.regression[0]


def test_a_slow_down_of_a_hundredth_is_none(tmp_path: Path) -> None:
    result, change = compared(tmp_path, slower=1.01)
    assert not change.regression and result.exit_code == 0
    assert change.speed in ("slower", "no change seen")
    if change.speed == "no change seen":
        assert change.advice == f"could tell {change.resolution:.1%}" and change.resolution < 0.05


def test_the_threshold_is_ones_own(tmp_path: Path) -> None:
    old, new = session(tmp_path / "old"), session(tmp_path / "new", slower=1.1, seed=1)
    assert compare_baseline(old, new, threshold=0.2).exit_code == 0
    assert compare_baseline(old, new, threshold=0.02).exit_code == 1
    faster = compare_baseline(new, old)
    assert (faster.changes[0].speed, faster.exit_code) == ("faster", 0)


def test_a_noisy_machine_decides_nothing(tmp_path: Path) -> None:
    old, new = session(tmp_path / "old", noise=0.15), session(tmp_path / "new", noise=0.15, seed=1)
    result = compare_baseline(old, new)
    assert (result.changes[0].speed, result.exit_code) == ("too noisy to conclude", 3)
    assert "more rounds" in result.changes[0].advice


def test_one_run_each_decides_nothing_about_speed(tmp_path: Path) -> None:
    one, two = (session(tmp_path / name, rounds=1) / "runs" / TORCH.label for name in ("a", "b"))
    result = compare_baseline(one, two)
    (change,) = result.changes
    assert (change.numbers, change.speed, change.rounds) == ("bit-equal", "too noisy to conclude", 1)
    assert result.exit_code == 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"host": "elsewhere"}, "other hosts"),
        ({"devices": ["cuda:0"]}, "other devices"),
        ({"threads": {"intra_op": 4, "inter_op": 1, "cores": 2, "pinned": 0}}, "other threads"),
    ],
)
def test_other_machines_do_not_compare_in_speed(
    tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    old, new = session(tmp_path / "old"), session(tmp_path / "new", slower=2)
    edit_json(new / "timing" / "round_2" / TORCH.label / "header.json", **changes)
    result = compare_baseline(old, new)
    (change,) = result.changes
    assert change.speed == "not compared" and change.ratio is None
    assert words in one_line(change.advice)
    assert change.numbers == "bit-equal", "numbers do compare"
    assert result.exit_code == 3


def test_other_ways_to_run_do_not_compare_in_speed(tmp_path: Path) -> None:
    old = session(tmp_path / "old")
    pinned = TORCH.model_copy(update={"loader_workers": 2})
    new = session(tmp_path / "new", placements=(pinned,))
    (change,) = compare_baseline(old, new).changes
    assert change.speed == "not compared" and "loader_workers 0 and loader_workers 2" in change.advice


# --- numbers ---


def test_equal_bits_are_said(tmp_path: Path) -> None:
    result, change = compared(tmp_path)
    assert (change.numbers, result.exit_code) == ("bit-equal", 0)
    assert "30 steps" in change.why


@pytest.mark.parametrize(
    ("factor", "numbers", "code"), [(1 + 1e-14, "within budget", 0), (1 + 1e-9, "different", 1)]
)
def test_float64_has_a_budget(tmp_path: Path, factor: float, numbers: str, code: int) -> None:
    result, change = compared(tmp_path, loss_factor=factor)
    assert (change.numbers, result.exit_code) == (numbers, code)
    assert bool(change.regression) == (code == 1)


def test_float32_needs_a_floor(tmp_path: Path) -> None:
    old = session(tmp_path / "old", spec=FLOAT32)
    new = session(tmp_path / "new", spec=FLOAT32, loss_factor=1 + 1e-7)
    result = compare_baseline(old, new)
    (change,) = result.changes
    assert (change.numbers, result.exit_code) == ("inconclusive", 3)
    assert "noise floor" in one_line(change.why)
    for seed in range(4):
        Run.of(FLOAT32, TORCH).noisy(1e-7, seed).write(old / "floor" / f"{seed}_torch")
    (judged,) = compare_baseline(old, new).changes
    assert judged.numbers == "within budget"
    far = session(tmp_path / "far", spec=FLOAT32, loss_factor=1.01)
    assert compare_baseline(old, far).changes[0].numbers == "different"


def test_other_specs_do_not_compare(tmp_path: Path) -> None:
    other = tiny_spec("data.train_samples=32", "global_batch_size=32", f"steps={STEPS}", "seed=1")
    result = compare_baseline(session(tmp_path / "old"), session(tmp_path / "new", spec=other))
    (change,) = result.changes
    assert (change.numbers, change.speed, result.exit_code) == ("not compared", "not compared", 3)
    assert "seed is 0 and 1" in change.why and "other specs" in change.advice


# --- the rest ---


def test_versions_memory_and_partners_are_listed(tmp_path: Path) -> None:
    old = session(tmp_path / "old", rounds=3, placements=(TORCH, DDP))
    new = session(tmp_path / "new", rounds=3)
    for folder, version, size in ((old, "2.13", 1000), (new, "2.14", 1500)):
        for path in folder.glob("**/header.json"):
            edit_json(path, versions={"torch": version, "numpy": "2"})
            (path.parent / "memory").mkdir()
            (path.parent / "memory" / "rank_0.json").write_text(json.dumps({"parameters": size}))
            (path.parent / "memory" / "rank_1.json").write_text(json.dumps({"parameters": size}))
    result = compare_baseline(old, new)
    assert result.versions == (("torch", "2.13", "2.14"),)
    assert (result.only_old, result.only_new) == (("torch ddp x2",), ())
    assert result.changes[0].memory == {"parameters": 1.5}


def test_sessions_of_parity_scale_are_read_too(tmp_path: Path) -> None:
    old, new = (session(tmp_path / name, seed=seed) for seed, name in enumerate(("old", "new")))
    for folder in (old, new):
        shutil.rmtree(folder / "runs")
        for round_ in (folder / "timing").iterdir():
            round_.rename(folder / round_.name)
    result = compare_baseline(old, new)
    assert (result.changes[0].numbers, result.changes[0].rounds, result.exit_code) == ("bit-equal", 5, 0)


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    old = session(tmp_path / "old", rounds=1)
    with pytest.raises(NotComparableError) as itself:
        compare_baseline(old, old)
    assert "itself" in one_line(itself.value)
    with pytest.raises(NotComparableError) as none:
        compare_baseline(old, session(tmp_path / "new", rounds=1, placements=(DDP,)))
    assert "no placement in common" in one_line(none.value)
    with pytest.raises(RecordError) as empty:
        compare_baseline(old, tmp_path / "nowhere")
    assert "neither a record nor a session" in one_line(empty.value)


def test_the_same_folders_give_the_same_result(tmp_path: Path) -> None:
    old, new = session(tmp_path / "old"), session(tmp_path / "new", seed=1)
    assert compare_baseline(old, new) == compare_baseline(old, new)
