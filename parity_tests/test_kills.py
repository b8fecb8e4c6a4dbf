"""A run that is killed at any instant goes on as if it had not been; what would not be so is seen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parity.common.record import RecordWriter, RunRecord, next_part
from parity.common.spec.strategies import Framework
from parity.common.state.canonical import load_state, save_state
from parity_tests import chains
from parity_tests.helpers import ROOT
from parity_tests.helpers.records import FACTS, TORCH, Run, tiny_spec
from parity_tests.kills import PLACEMENTS, draw, problems_of
from parity_tests.tables.kills import CHAINS, COUNTS, SEED, KillTable

# Of each framework, of the 100: a rank that is killed, and whoever writes a checkpoint.
# A chain of two placements, one of each framework.
CHAIN = 81
SAMPLE: dict[Framework, tuple[int, ...]] = {"torch": (0, 2), "tensorflow": (3, 4)}
ROW = 72


def made(framework: Framework, folder: Path, numbers: tuple[int, ...]) -> list[str]:
    """What is printed of some of a framework's kill points."""
    command = [sys.executable, "-m", "parity_tests.kills", framework, str(folder), f"--seed={SEED}"]
    command += [f"--count={COUNTS[framework]}", "--only", *map(str, numbers)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.splitlines()
    assert len(lines) == len(numbers), done.returncode
    return lines


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["torch", pytest.param("tensorflow", marks=pytest.mark.exhaustive)])
def test_killed_runs_end_as_the_straight_run(tmp_path: Path, framework: Framework) -> None:
    outcomes = KillTable().add(made(framework, tmp_path, SAMPLE[framework]))
    assert [each["problems"] for each in outcomes] == [[]] * len(outcomes)


@pytest.mark.exhaustive
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("framework", sorted(COUNTS))
def test_200_killed_runs_end_as_the_straight_run(
    tmp_path: Path, kills: KillTable, framework: Framework
) -> None:
    outcomes = kills.add(made(framework, tmp_path, tuple(range(COUNTS[framework]))))
    assert [each for each in outcomes if each["problems"]] == []


def chained(folder: Path, *more: object) -> list[str]:
    """What is printed of some chains."""
    command = [
        sys.executable,
        "-m",
        "parity_tests.chains",
        str(folder),
        f"--seed={SEED}",
        f"--count={CHAINS}",
    ]
    done = subprocess.run(
        [*command, *map(str, more)], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    return done.stdout.splitlines()


@pytest.mark.slow
def test_a_chain_over_frameworks_ends_in_parity(tmp_path: Path) -> None:
    (outcome,) = KillTable().add(chained(tmp_path / "chains", "--only", CHAIN))
    assert (
        outcome["problems"] == [] and "torch" in outcome["placement"] and "tensorflow" in outcome["placement"]
    )


@pytest.mark.exhaustive
@pytest.mark.timeout(4 * 3600)
def test_100_chains_end_in_parity(tmp_path: Path, kills: KillTable) -> None:
    outcomes = kills.add(chained(tmp_path / "chains"))
    assert len(outcomes) == CHAINS and [each for each in outcomes if each["problems"]] == []


def test_chains_are_the_same_each_time_and_of_every_strategy() -> None:
    drawn = chains.draw(SEED, CHAINS)
    assert drawn == chains.draw(SEED, CHAINS) != chains.draw(SEED + 1, CHAINS)
    killed = {leg.placement for chain in drawn for leg in chain.legs[:-1]}
    assert killed == {leg.placement for chain in drawn for leg in chain.legs} == set(chains.PLACEMENTS)
    assert {len(chain.legs) for chain in drawn} == {2, 3, 4}


def test_the_kill_points_are_the_same_each_time_and_of_every_kind() -> None:
    for framework, count in COUNTS.items():
        points = draw(framework, SEED, count)
        assert points == draw(framework, SEED, count) != draw(framework, SEED + 1, count)
        drawn = {point.config.placement for point in points}
        assert drawn == set(PLACEMENTS[framework])
        struck = {kill.who for point in points for kill in point.kills}
        assert struck == {"all", "parent", "rank 0", "rank 1"}
        assert {kill.when for point in points for kill in point.kills} == {"moment", "step", "saving"}
        assert any(len(point.kills) == 2 for point in points)


# What would be wrong is seen: records made by hand.


@pytest.fixture
def straight(tmp_path: Path) -> RunRecord:
    return Run.of(tiny_spec(), TORCH).write(tmp_path / "straight")


@pytest.fixture
def killed(tmp_path: Path, straight: RunRecord) -> Path:
    """A run that was killed in its fifth step, of which its last checkpoint holds three, and went on."""
    contents, run = Run.of(tiny_spec(), TORCH), tmp_path / "killed"
    for folder, steps in ((run, range(4)), (next_part(run), range(3, 6))):
        folder.mkdir(parents=True)
        writer = RecordWriter(folder, contents.spec, contents.placement, range(1), FACTS)
        for step in steps:
            contents.write_step(writer, step)
        if folder == run:
            writer.close()
    writer.finish(contents.evaluation)
    shutil.copy(straight.folder / "final.safetensors", folder)
    with open(run / "steps.f64", "ab") as file:
        file.write(bytes(9))
    return run


def part_of(run: Path) -> Path:
    return run / "resumed" / "001"


def lose_a_step(run: Path) -> None:
    rows = (run / "steps.f64").read_bytes()
    (run / "steps.f64").write_bytes(rows[: 2 * ROW])


def lose_the_last_step(run: Path) -> None:
    part = part_of(run)
    (part / "steps.f64").write_bytes((part / "steps.f64").read_bytes()[: 2 * ROW])
    counted = (part / "summary.json").read_text().replace('"steps": 3', '"steps": 2')
    (part / "summary.json").write_text(counted)


def swap_two_samples(run: Path) -> None:
    path = part_of(run) / "sample_ids" / "replica_0.ids"
    words = path.read_bytes()
    path.write_bytes(words[:-16] + words[-8:] + words[-16:-8])


def change_a_bit(run: Path) -> None:
    path = part_of(run) / "steps.f64"
    rows = bytearray(path.read_bytes())
    rows[ROW + 8] ^= 1
    path.write_bytes(bytes(rows))


def change_the_final_state(run: Path) -> None:
    path = part_of(run) / "final.safetensors"
    state = load_state(path)
    name = next(name for name in state if name.startswith("parameters/"))
    state[name].flat[0] = np.nextafter(state[name].flat[0], 9.0)
    save_state(path, state)


def leave_half_a_checkpoint(run: Path) -> None:
    (run / "checkpoints" / "step_00000003.partial").mkdir(parents=True)


def end_without_a_summary(run: Path) -> None:
    (part_of(run) / "summary.json").unlink()


def test_a_run_that_went_on_is_the_straight_run(killed: Path, straight: RunRecord) -> None:
    assert problems_of(killed, straight) == []


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lose_the_last_step, "its steps are 0-4, should be 0-5"),
        (lose_a_step, "step 2 is in none of the parts"),
        (change_a_bit, "loss_sum differs first in step 4"),
        (change_the_final_state, "its final parameters/"),
        (swap_two_samples, "its samples differ"),
        (leave_half_a_checkpoint, "step_00000003.partial is left"),
        (end_without_a_summary, "it has no summary"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_not_as_in_the_straight_run_is_seen(
    killed: Path, straight: RunRecord, spoil: Callable[[Path], None], said: str
) -> None:
    spoil(killed)
    problems = problems_of(killed, straight)
    assert len(problems) == 1 and said in problems[0], problems


def test_the_page_counts_what_went_wrong() -> None:
    table = KillTable()
    line = (
        '{"number": 4, "placement": "torch ddp x2", "saving": "every 3", "kills": ["rank 1 at step 7"],'
        ' "hit": ["rank 1 after 8 steps"], "late": 1, "resumed_at": [6], "problems": [], "seconds": 1.0}'
    )
    table.add(["Warning: not a result", line, line.replace("[]", '["step 7 is lost"]')])
    page = table.page()
    assert "**1 of 2 kill points right.**" in page and "**no: step 7 is lost**" in page
    assert "2 more came too late" in page and "0 stayed too late" in page
    assert "| torch ddp x2 | 2 | 1 | 2 | 0 | 0 | 0 |" in page
