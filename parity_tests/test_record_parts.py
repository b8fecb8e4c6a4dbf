"""Runs that were stopped and went on: their parts read as one run, and are judged as one."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.common.base.errors import NotComparableError, RecordError
from parity.common.data.plan import BatchPlan
from parity.common.execution import progress
from parity.common.parity.budget import proof_budget
from parity.common.parity.compare import Comparison, compare, unequal_replicas
from parity.common.parity.result import Result, judge
from parity.common.parity.sample_ids import audit, first_unequal_step
from parity.common.record import RecordWriter, RunRecord, read_record, samples
from parity.common.record.header import steps_in
from parity.common.record.parts import kept_steps
from parity.common.reference import StepScalars
from parity.common.report.files import to_json, write_junit
from parity.common.report.html.comparison import write_html
from parity.common.spec import Placement, RunOptions, TrainSpec
from parity.common.state.canonical import save_state
from parity_tests.helpers.matrix import config
from parity_tests.helpers.records import (
    DDP,
    FACTS,
    MIRRORED,
    TORCH,
    Run,
    edit_json,
    one_line,
    received_ids,
    recipe_spec,
    tiny_spec,
)
from parity_tests.helpers.run_cache import RunCache

SPEC = tiny_spec("steps=30", "precision=float64")
FSDP = Placement(framework="torch", strategy="fsdp2", replicas=4)
# A killed run of two replicas, one on four that was stopped, and one on one that came to the end.
WAY = ((MIRRORED, 0, 15), (FSDP, 10, 25), (TORCH, 25, 30))


def write_part(run: Run, folder: Path, steps: range, finished: bool) -> None:
    """What a run that trains these steps leaves, on the placement of `run`; one writer a process."""
    folder.mkdir(parents=True)
    placement, rates = run.placement, StepScalars(run.spec)
    for step in range(steps.start):
        rates.observe(step, 1.0, 1.0)
    kept = rates.kept() if steps.start else None
    several = placement.replicas_per_process
    for process in range(placement.processes):
        replicas = range(process * several, (process + 1) * several)
        writer = RecordWriter(
            folder, run.spec, placement, replicas, FACTS, kept=kept, run_options=run.options
        )
        for step in steps:
            run.write_step(writer, step, replicas)
            if run.options.digests:
                writer.fingerprints(step, [str(step)] * several)
        if finished:
            writer.of_rank("memory", process, {"parameters": steps.start})
            writer.finish(run.evaluation)
        else:
            writer.close()
    # As `train` does: what it began with, and of the first update the gradients.
    begun = run.states["initial"] if steps.start == 0 else run.states["final"]
    save_state(folder / "initial.safetensors", {**begun, "step": np.array(steps.start)})
    if steps.start == 0:
        save_state(folder / "first_gradients.safetensors", run.states["first_gradients"])
    if finished:
        save_state(folder / "final.safetensors", {**run.states["final"], "step": np.array(steps.stop)})


def part_of(folder: Path, number: int) -> Path:
    return folder / "resumed" / f"{number:03d}" if number else folder


def write_parts(
    folder: Path,
    way: Sequence[tuple[Placement, int, int]] = WAY,
    spec: TrainSpec = SPEC,
    change: Callable[[int, Run], object] | None = None,
) -> RunRecord:
    """A run that went on: of each part its placement, its first step and the one before which it ended.

    change: spoils what a part, given its number, is to leave.
    """
    honest = Run.of(spec, TORCH)
    for number, (placement, first, stop) in enumerate(way):
        run = honest.copy(placement)
        if change is not None:
            change(number, run)
        write_part(run, part_of(folder, number), range(first, stop), stop == spec.steps)
    return read_record(folder)


def refused(folder: Path, *words: str) -> None:
    with pytest.raises(RecordError) as error:
        read_record(folder)
    assert all(word in one_line(error.value) for word in words), str(error.value)


def compared(reference: RunRecord, candidate: RunRecord) -> Comparison:
    return compare(reference, candidate, proof_budget(reference))


def in_part(wanted: int, change: Callable[[Run], object]) -> Callable[[int, Run], object]:
    return lambda number, run: change(run) if number == wanted else None


@pytest.fixture
def straight(tmp_path: Path) -> RunRecord:
    return Run.of(SPEC, TORCH).write(tmp_path / "straight")


def test_the_parts_of_a_run_read_as_one(tmp_path: Path, straight: RunRecord) -> None:
    record = write_parts(tmp_path / "run")
    assert record.folder == tmp_path / "run" and record.placement == TORCH
    assert [part.steps.tolist() for part in record.parts] == [
        list(range(10)),
        list(range(10, 25)),
        list(range(25, 30)),
    ]
    assert record.label == "tensorflow mirrored x2, from step 10 torch fsdp2 x4, from step 25 torch single x1"
    for name, column in straight.columns.items():
        assert name == "seconds" or np.array_equal(record.columns[name], column), name
    assert record.summary is not None and record.summary.steps == 30
    seconds = [float(part.columns["seconds"].sum()) for part in record.parts[:2]]
    last = read_record(part_of(tmp_path / "run", 2)).summary
    assert last is not None and last.steps == 5
    assert math.isclose(record.summary.wall_seconds, sum(seconds) + last.wall_seconds)
    for which in ("initial", "first_gradients", "final"):
        ours, theirs = record.state(which), straight.state(which)
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[name], theirs[name]) for name in ours), which
    assert record.violations == () and record.memory == [{"parameters": 25}]
    assert record.fingerprints == [] and record.taps is None and record.phases == []
    with pytest.raises(RecordError, match="2 and 4 and 1 replicas"):
        received_ids(record)
    with pytest.raises(RecordError, match="its parts had replicas of their own"):
        record.received  # noqa: B018


def test_a_part_reads_as_itself(tmp_path: Path) -> None:
    write_parts(tmp_path / "run")
    part = read_record(part_of(tmp_path / "run", 1))
    assert part.parts == (part,) and part.label == "torch fsdp2 x4"
    assert part.steps.tolist() == list(range(10, 25)) and part.summary is None
    assert int(part.state("initial")["step"]) == 10
    plain = Run.of(SPEC, TORCH).write(tmp_path / "plain")
    assert plain.parts == (plain,)


@pytest.mark.parametrize(
    ("places", "label"),
    [
        ((DDP, DDP, DDP), "torch ddp x2"),
        ((DDP, DDP, TORCH), "torch ddp x2, from step 25 torch single x1"),
        ((DDP, TORCH, DDP), "torch ddp x2, from step 10 torch single x1, from step 25 torch ddp x2"),
    ],
)
def test_the_label_tells_each_change_of_placement(
    tmp_path: Path, places: tuple[Placement, ...], label: str
) -> None:
    way = [(place, first, stop) for place, (_, first, stop) in zip(places, WAY, strict=True)]
    record = write_parts(tmp_path / "run", way)
    assert record.label == label and len(record.steps) == 30
    if set(places) == {DDP}:
        plain = Run.of(SPEC, DDP).write(tmp_path / "plain")
        for ours, theirs in zip(received_ids(record), received_ids(plain), strict=True):
            assert all(np.array_equal(*pair) for pair in zip(ours, theirs, strict=True))


def test_a_run_that_went_on_is_judged_as_one(tmp_path: Path, straight: RunRecord) -> None:
    record = write_parts(tmp_path / "run")
    ways = [(DDP, 0, 7), (MIRRORED, 7, 30)]
    other = write_parts(tmp_path / "other", ways)
    for pair in ((straight, record), (record, straight), (record, other)):
        found = compared(*pair)
        assert found.verdict == "parity", found.reason
        names = {check.name: check for check in found.checks}
        assert names["initial state"].passed and names["first-step gradients"].passed
    seen = audit(record)
    assert seen.passed and seen.steps == seen.audited_steps == 30 and seen.replicas == 4
    assert seen.samples == audit(straight).samples
    empty = sum(audit(part).empty_local_batches for part in record.parts)
    assert seen.empty_local_batches == empty


def test_a_run_that_went_on_is_held_against_the_noise_of_another(tmp_path: Path) -> None:
    spec = tiny_spec("steps=30", "precision=float32")
    run = Run.of(spec, TORCH)
    reference = run.write(tmp_path / "reference")
    floors = [run.noisy(1e-6, seed).write(tmp_path / f"floor_{seed}") for seed in (1, 2, 3, 4)]
    record = write_parts(tmp_path / "run", spec=spec)
    assert judge([reference, record]).verdict == "inconclusive"
    assert judge([reference, record], floors).verdict == "parity"
    change = in_part(1, lambda run: spoil(run, "loss_sum", 12, 1e-2))
    spoiled = write_parts(tmp_path / "spoiled", spec=spec, change=change)
    assert judge([reference, spoiled], floors).verdict == "divergent"
    with pytest.raises(RecordError, match="no compared record is a run of torch single x1, unpermuted"):
        judge([record, spoiled], floors)


SPOILED: dict[str, tuple[int, Callable[[Run], object], str, int]] = {
    "a loss of the first part": (0, lambda run: spoil(run, "loss_sum", 9), "loss curve", 9),
    "a loss of the second": (1, lambda run: spoil(run, "loss_sum", 10), "loss curve", 10),
    "a norm of the last": (2, lambda run: spoil(run, "update_norm", 29), "update norm", 29),
    "samples of the second": (1, lambda run: put(run, 24, 3, 1), "sample ids", 24),
}
SET_ASIDE: dict[str, tuple[int, Callable[[Run], object]]] = {
    "a loss": (0, lambda run: spoil(run, "loss_sum", 10)),
    "samples": (0, lambda run: put(run, 14, 1, 0)),
}


def spoil(run: Run, column: str, step: int, by: float = 1e-9) -> None:
    run.column(column)[step] *= 1 + by


def put(run: Run, step: int, replica: int, place: int) -> None:
    """Another sample than the plan's, which belongs to no batch near."""
    unused = np.setdiff1d(np.arange(37), np.concatenate(run.ids[step]))
    run.ids[step][replica][place] = unused[0]


@pytest.mark.parametrize("what", SPOILED)
def test_what_is_wrong_in_any_part_is_found(tmp_path: Path, straight: RunRecord, what: str) -> None:
    number, change, check, step = SPOILED[what]
    record = write_parts(tmp_path / "run", change=in_part(number, change))
    for pair in ((straight, record), (record, straight)):
        found = compared(*pair)
        assert found.verdict == "divergent"
        assert found.first_failure is not None
        assert found.first_failure.name == check and f"step {step}" in found.first_failure.where


@pytest.mark.parametrize("what", SET_ASIDE)
def test_what_was_trained_in_vain_is_not_judged(tmp_path: Path, straight: RunRecord, what: str) -> None:
    record = write_parts(tmp_path / "run", change=in_part(*SET_ASIDE[what]))
    found = compared(straight, record)
    assert found.verdict == "parity", found.reason
    assert record.violations == ()


def test_the_breaches_of_all_parts_count(tmp_path: Path, straight: RunRecord) -> None:
    record = write_parts(tmp_path / "run", change=in_part(1, lambda run: put(run, 12, 2, 0)))
    assert [(violation.step, violation.replica) for violation in record.violations] == [(12, 2)]
    names = {check.name: check for check in compared(straight, record).checks}
    assert not names["invariants"].passed and "step 12" in names["invariants"].where


DIGESTED = [config(place, digests=True) for place in (MIRRORED, DDP)]


@pytest.mark.parametrize("step", [None, 9, 12, 20])
def test_replicas_are_compared_within_each_part(
    tmp_path: Path, straight: RunRecord, step: int | None
) -> None:
    way = [(DIGESTED[0], 0, 15), (DIGESTED[1], 10, 20), (TORCH, 20, 30)]
    record = write_parts(tmp_path / "run", way)
    for number in (0, 1) if step is not None else ():
        path = part_of(tmp_path / "run", number) / "fingerprints/replica_1.jsonl"
        lines = path.read_text().splitlines()
        changed = [line.replace(f'": "{step}"', '": "other"') for line in lines]
        path.write_text("\n".join(changed) + "\n")
    found = {check.name: check for check in compared(straight, record).checks}["replicas equal"]
    # Step 12 was trained by both parts; 20 by neither of those that wrote digests.
    if step in (None, 20):
        assert found.passed and found.where == "10 steps of 2 replicas, 10 steps of 2 replicas"
    else:
        assert not found.passed and unequal_replicas(record) == [(step, 1)]


def test_digests_and_taps_of_equal_parts_are_one(tmp_path: Path) -> None:
    record = write_parts(tmp_path / "run", [(DIGESTED[0], 0, 15), (DIGESTED[1], 10, 30)])
    assert record.fingerprints == [[str(step) for step in range(30)]] * 2
    with pytest.raises(RecordError, match="recorded different things"):
        write_parts(tmp_path / "other", [(DIGESTED[0], 0, 15), (DDP, 10, 30)]).fingerprints  # noqa: B018
    for first, stop in ((0, 4), (3, 6)):
        run = Run.of(tiny_spec(), DDP)
        folder = part_of(tmp_path / "tapped", first // 3)
        folder.mkdir(parents=True)
        for rank in (0, 1):
            replicas, options = range(rank, rank + 1), RunOptions(taps=True)
            writer = RecordWriter(folder, run.spec, DDP, replicas, FACTS, run_options=options)
            writer.tap_names(["a", "b"])
            for step in range(first, stop):
                run.write_step(writer, step, range(rank, rank + 1))
                writer.taps(step, [np.full((2, 2), 10.0 * step + rank)])
            writer.close()
    taps = read_record(tmp_path / "tapped").taps
    assert taps is not None and taps.names == ("a", "b")
    assert taps.values[:, :, 0, 0].tolist() == [[10.0 * step + rank for step in range(6)] for rank in (0, 1)]


@pytest.mark.parametrize(
    "begun",
    [
        lambda part: (part / "logs").mkdir(),
        lambda part: shutil.copy(part.parent.parent / "header.json", part),
        lambda part: [shutil.copy(part.parent.parent / "header.json", part), (part / "steps.f64").touch()],
        lambda part: [
            shutil.copy(part.parent.parent / "header.json", part),
            (part / "steps.f64").write_bytes(bytes(71)),
        ],
    ],
    ids=["no header", "no steps", "no row", "no whole row"],
)
def test_a_part_killed_before_its_first_step_is_nothing(
    tmp_path: Path, straight: RunRecord, begun: Callable[[Path], object]
) -> None:
    """Whether it was the last, or the run went on once more."""
    folder = tmp_path / "run"
    write_parts(folder, [(MIRRORED, 0, 15)])
    part_of(folder, 1).mkdir(parents=True)
    begun(part_of(folder, 1))
    record = read_record(folder)
    assert record.steps.tolist() == list(range(15)) and record.summary is None and record.parts == (record,)
    write_part(Run.of(SPEC, FSDP), part_of(folder, 2), range(10, 30), finished=True)
    whole = read_record(folder)
    assert whole.label == "tensorflow mirrored x2, from step 10 torch fsdp2 x4"
    assert compared(straight, whole).verdict == "parity"


def test_half_a_row_of_any_part_is_dropped(tmp_path: Path, straight: RunRecord) -> None:
    record = write_parts(tmp_path / "run", [(MIRRORED, 0, 11), (DDP, 10, 30)])
    steps = tmp_path / "run" / "steps.f64"
    steps.write_bytes(steps.read_bytes()[:-7])
    again = read_record(tmp_path / "run")
    assert again.steps.tolist() == record.steps.tolist()
    assert compared(straight, again).verdict == "parity"
    steps.write_bytes(steps.read_bytes()[:-72])
    refused(tmp_path / "run", "step 9 is in none of the parts", "resumed/001")


def test_a_first_part_without_a_step_is_made_up_for_by_one_from_the_beginning(
    tmp_path: Path, straight: RunRecord
) -> None:
    folder = tmp_path / "run"
    write_parts(folder, [(MIRRORED, 0, 0), (DDP, 0, 30)])
    record = read_record(folder)
    assert record.label == "torch ddp x2" and record.folder == folder
    assert compared(straight, record).verdict == "parity"
    shutil.rmtree(part_of(folder, 1))
    write_part(Run.of(SPEC, DDP), part_of(folder, 1), range(10, 30), finished=True)
    refused(folder, "steps 0 to 9 are in none of the parts")


def test_a_run_killed_after_its_last_step_only_ends(tmp_path: Path, straight: RunRecord) -> None:
    folder = tmp_path / "run"
    write_parts(folder, [(MIRRORED, 0, 29), (DDP, 29, 29)])
    write_part(Run.of(SPEC, DDP), part_of(folder, 2), range(29, 30), finished=False)
    assert read_record(folder).summary is None
    write_part(Run.of(SPEC, TORCH), part_of(folder, 3), range(30, 30), finished=True)
    record = read_record(folder)
    assert record.summary is not None and record.summary.steps == len(record.steps) == 30
    assert record.label == "tensorflow mirrored x2, from step 29 torch ddp x2" and record.placement == TORCH
    for pair in ((straight, record), (record, straight)):
        assert compared(*pair).verdict == "parity"
    assert audit(record).audited_steps == 30
    write_html(judge([record, straight]), tmp_path / "report.html")
    state = record.state("final")
    for step in (np.array([30]), np.array(30.0), np.array(-1)):
        save_state(part_of(folder, 3) / "final.safetensors", {**state, "step": step})
        refused(folder, "does not say of which step it is")
    save_state(part_of(folder, 3) / "final.safetensors", {**state, "step": np.array(31)})
    refused(folder, "step 30 is in none of the parts")
    edit_json(part_of(folder, 3) / "summary.json", steps=1)
    refused(folder, "truncated")


def test_a_run_that_went_on_before_where_another_part_began_sets_that_aside(
    tmp_path: Path, straight: RunRecord
) -> None:
    way = [(MIRRORED, 0, 30), (FSDP, 20, 30), (DDP, 10, 18)]
    record = write_parts(tmp_path / "run", way, change=in_part(1, lambda run: spoil(run, "loss_sum", 25)))
    assert record.label == "tensorflow mirrored x2, from step 10 torch ddp x2"
    assert record.steps.tolist() == list(range(18)) and record.summary is None, "the end was taken back"
    with pytest.raises(RecordError, match=r"final\.safetensors: missing"):
        record.state("final")
    with pytest.raises(NotComparableError, match="did not finish \\(18 of 30 steps\\)"):
        compared(straight, record)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no header": (lambda f: (f / "resumed/001/header.json").unlink(), "not a run record"),
    "a torn header": (lambda f: (f / "resumed/001/header.json").write_text("{"), "not JSON"),
    "no steps of what has ended": (lambda f: (f / "resumed/002/steps.f64").unlink(), "cannot be read"),
    "fewer steps than it ended with": (
        lambda f: (f / "resumed/002/steps.f64").write_bytes((f / "resumed/002/steps.f64").read_bytes()[:-72]),
        "truncated",
    ),
    "a lost part": (lambda f: shutil.rmtree(f / "resumed/001"), "steps 15 to 24 are in none of the parts"),
    "the first part's steps": (lambda f: (f / "steps.f64").unlink(), "steps 0 to 9 are in none of the parts"),
    "a part's rows": (lambda f: (f / "resumed/001/steps.f64").unlink(), "steps 15 to 24 are in none"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_told_in_one_line(tmp_path: Path, what: str) -> None:
    write_parts(tmp_path / "run")
    damage, said = DAMAGE[what]
    damage(tmp_path / "run")
    refused(tmp_path / "run", said, str(tmp_path / "run"))


def test_parts_of_two_specs_are_no_run(tmp_path: Path) -> None:
    write_parts(tmp_path / "run", [(MIRRORED, 0, 15)])
    other = tiny_spec("steps=30", "precision=float64", "seed=1")
    write_part(Run.of(other, DDP), part_of(tmp_path / "run", 1), range(10, 30), finished=True)
    refused(tmp_path / "run", "are of different specs")


def test_parts_on_other_data_are_not_compared(tmp_path: Path, straight: RunRecord) -> None:
    write_parts(tmp_path / "run")
    edit_json(part_of(tmp_path / "run", 1) / "header.json", data_hash="ab")
    with pytest.raises(NotComparableError, match="different data"):
        compared(straight, read_record(tmp_path / "run"))
    write_parts(tmp_path / "unrecorded", [(MIRRORED, 0, 15), (DDP, 10, 30)])
    path = tmp_path / "unrecorded" / "header.json"
    edit_json(path, run_options={"recording": "off"})
    with pytest.raises(NotComparableError, match="recording off"):
        compared(straight, read_record(tmp_path / "unrecorded"))


def test_statistics_per_replica_need_the_same_replicas_at_every_step(tmp_path: Path) -> None:
    layers = [
        {"kind": "dense", "units": 4},
        {"kind": "batch_norm", "statistics": "per_replica"},
        {"kind": "dense", "units": 3},
    ]
    spec = tiny_spec("steps=30", "precision=float64", f"model.layers={json.dumps(layers)}")
    assert spec.per_replica_statistics
    plain = Run.of(spec, DDP).write(tmp_path / "plain")
    alike = write_parts(tmp_path / "alike", [(MIRRORED, 0, 15), (DDP, 10, 30)], spec)
    assert compared(plain, alike).verdict == "parity"
    moved = write_parts(tmp_path / "moved", [(MIRRORED, 0, 15), (TORCH, 10, 20), (DDP, 20, 30)], spec)
    with pytest.raises(NotComparableError, match="replicas 2 and 2, from step 10 1, from step 20 2 are"):
        compared(plain, moved)


def test_reports_tell_of_the_parts(tmp_path: Path, straight: RunRecord) -> None:
    record = write_parts(tmp_path / "run")
    edit_json(part_of(tmp_path / "run", 1) / "header.json", host="another")
    record = read_record(tmp_path / "run")
    result = judge([straight, record])
    assert result.verdict == "parity"
    for written in (result, judge([record, straight]), wrong_split(tmp_path, straight)):
        write_html(written, tmp_path / "report.html")
        page = (tmp_path / "report.html").read_text()
        assert "from step 10 torch fsdp2 x4" in page and "another" in page
        assert "from step 10: 4 × 4" in page
        write_junit(written, tmp_path / "report.xml")
        data = json.loads(json.dumps(to_json(written)))
        ours = next(entry for entry in data["records"] if entry["parts"])
        assert [(part["first_step"], part["steps"]) for part in ours["parts"]] == [(0, 10), (10, 15), (25, 5)]
        assert sum(bool(entry["parts"]) for entry in data["records"]) == 1
    line = progress.closing_line(tmp_path / "run")
    assert line.startswith(f"{record.label}: 30 steps, loss {record.loss[0]:.4f} -> {record.loss[-1]:.4f}")
    assert steps_in(part_of(tmp_path / "run", 1) / "steps.f64") == 25


def wrong_split(folder: Path, straight: RunRecord) -> Result:
    record = write_parts(folder / "wrong", change=in_part(1, lambda run: put(run, 12, 2, 0)))
    edit_json(part_of(folder / "wrong", 1) / "header.json", host="another")
    result = judge([straight, read_record(folder / "wrong")])
    assert result.verdict == "divergent" and record.label in result.comparisons[0].candidate
    return result


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 20)), min_size=1, max_size=6))
@settings(deadline=None, max_examples=200)
def test_a_step_is_of_the_last_part_from_which_on_it_was_not_set_aside(parts: list[tuple[int, int]]) -> None:
    taken = [range(first, first + count) for first, count in parts]
    kept = kept_steps(taken)
    for number, (steps, left) in enumerate(zip(taken, kept, strict=True)):
        later = [other.start for other in taken[number + 1 :]]
        assert list(left) == [step for step in steps if all(step < start for start in later)]
    held = [step for steps in kept for step in steps]
    assert held == sorted(set(held)), "no step is doubled, and they are in order"


# Sample ids of long runs: whole of few steps, then digests of blocks of 256 steps, which a kill cuts anywhere.
LONG = 700
LONG_SPEC = tiny_spec(f"steps={LONG}", "precision=float64", "data.train_samples=997", "data.eval_samples=0")
NINE = Placement(framework="torch", strategy="ddp", replicas=9)
WAYS = {
    "within a block": ((DDP, 0, 310), (TORCH, 300, LONG)),
    "within the whole ids": ((DDP, 0, 4), (TORCH, 3, LONG)),
    "at the end of a block": ((DDP, 0, 520), (NINE, 512, LONG)),
    "a block set aside": ((NINE, 0, 600), (DDP, 250, LONG)),
    "within one block again and again": (
        (MIRRORED, 0, 290),
        (NINE, 270, 300),
        (TORCH, 280, 282),
        (DDP, 281, LONG),
    ),
}


@pytest.fixture
def few_whole_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "whole_steps", lambda plan: 5)


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(samples, "whole_steps", lambda plan: 5)
        return Run.of(LONG_SPEC, MIRRORED).write(tmp_path_factory.mktemp("long") / "run")


@pytest.mark.usefixtures("few_whole_steps")
@pytest.mark.parametrize("way", WAYS)
def test_digests_of_parts_are_those_of_the_run(tmp_path: Path, long_run: RunRecord, way: str) -> None:
    record = write_parts(tmp_path / "run", WAYS[way], LONG_SPEC)
    assert first_unequal_step(long_run, record) is None and first_unequal_step(record, long_run) is None
    found, wanted = audit(record), audit(long_run)
    assert found.problems == () and found.audited_steps == found.steps == LONG
    assert found.samples == wanted.samples
    plans = [(part, step) for part in record.parts for step in part.steps.tolist()]
    empty = sum((len(run_ids) == 0) for part, step in plans for run_ids in shares(part, step))
    assert found.empty_local_batches == empty
    write_html(judge([record, long_run]), tmp_path / "report.html")


def shares(part: RunRecord, step: int) -> list[np.ndarray]:
    plan = BatchPlan.of(part.spec, part.placement)
    return [plan.local_ids(step, replica) for replica in range(plan.replicas)]


@pytest.mark.usefixtures("few_whole_steps")
@pytest.mark.parametrize(
    ("number", "step", "found"),
    [
        (0, 2, "step 2"),
        (0, 299, "step 299"),
        (0, 305, None),
        (1, 302, "step 302"),
        (1, 400, "step 400"),
        (1, 699, "step 699"),
    ],
)
def test_a_wrong_sample_of_any_part_is_found(
    tmp_path: Path, long_run: RunRecord, number: int, step: int, found: str | None
) -> None:
    """Step 305 of the first part was trained in vain, within a block of steps that count."""

    def change(run: Run) -> None:
        run.ids[step][0][0] = np.setdiff1d(np.arange(997), np.concatenate(run.ids[step]))[0]

    record = write_parts(tmp_path / "run", WAYS["within a block"], LONG_SPEC, in_part(number, change))
    unequal = first_unequal_step(long_run, record)
    problems = audit(record).problems
    if found is None:
        assert unequal is None and problems == ()
        assert compared(long_run, record).verdict == "parity"
        return
    assert [problem.split(":")[0] for problem in problems] == [found]
    assert unequal is not None
    first, last = [int(word) for word in unequal.split() if word.isdecimal()][:1] * 2
    if unequal.startswith("steps"):
        last = int(unequal.split()[-1])
    assert first <= step <= last
    assert compared(long_run, record).verdict == "divergent"


@pytest.mark.parametrize("number", [0, 1, 2])
def test_tampered_ids_of_any_part_are_found(tmp_path: Path, straight: RunRecord, number: int) -> None:
    record = write_parts(tmp_path / "run")
    part = record.parts[number]
    path = part.folder / "sample_ids/replica_0.ids"
    words = np.fromfile(path, "<i8")
    other = np.setdiff1d(np.arange(37), np.concatenate(shares(part, int(part.steps[0]))))[0]
    words[3] = other
    words.tofile(path)
    again = read_record(tmp_path / "run")
    assert first_unequal_step(straight, again) == f"step {part.steps[0]}"
    assert compared(straight, again).verdict == "divergent"


@pytest.mark.usefixtures("few_whole_steps")
@pytest.mark.parametrize("field", [4, 5, 6])
def test_tampered_digests_of_a_part_cut_short_are_found(
    tmp_path: Path, long_run: RunRecord, field: int
) -> None:
    """Fields: empty, multiset, placed."""
    write_parts(tmp_path / "run", WAYS["within a block"], LONG_SPEC)
    path = tmp_path / "run/sample_ids/replica_1.hashes"
    rows = np.fromfile(path, "<i8").reshape(-1, 7)
    rows[-1, field] += 1
    rows.tofile(path)
    record = read_record(tmp_path / "run")
    (problem,) = audit(record).problems
    assert problem.startswith("steps 256 to 309")
    assert (first_unequal_step(long_run, record) == "steps 256 to 511") is (field == 5)


@pytest.mark.usefixtures("few_whole_steps")
@pytest.mark.parametrize("kind", ["ids", "hashes"])
def test_a_rank_killed_behind_the_others_leaves_what_counts(
    tmp_path: Path, straight: RunRecord, kind: str
) -> None:
    """Rank 1 of the first part was killed before it wrote the last steps, which were set aside."""
    write_parts(tmp_path / "run", [(DDP, 0, 15), (TORCH, 10 if kind == "hashes" else 3, 30)])
    path = tmp_path / "run/sample_ids/replica_1.ids"
    if kind == "ids":
        path.write_bytes(path.read_bytes()[:-8])
        path.with_suffix(".hashes").unlink()
    else:
        path = path.with_suffix(".hashes")
        shorter = Run.of(SPEC, DDP)
        write_part(shorter, tmp_path / "shorter", range(12), finished=False)
        path.write_bytes((tmp_path / "shorter/sample_ids/replica_1.hashes").read_bytes())
    record = read_record(tmp_path / "run")
    assert compared(straight, record).verdict == "parity"


@pytest.mark.slow
def test_a_real_run_that_went_on_elsewhere_is_judged_as_one(tmp_path: Path, run_cache: RunCache) -> None:
    spec = recipe_spec("digits_mlp", "precision=float64", "steps=20", "data.train_samples=300")
    straight = run_cache.record(spec, TORCH)
    first = config(DDP, stop_at_step=15, save={"every_steps": 10})
    run = tmp_path / "run"
    shutil.copytree(run_cache.begin(spec, first).result(), run)
    later = config(MIRRORED, resume=str(run / "checkpoints" / "step_00000010"))
    shutil.copytree(run_cache.begin(spec, later).result(), part_of(run, 1))
    record = read_record(run)
    assert record.label == "torch ddp x2, from step 10 tensorflow mirrored x2"
    assert [len(part.steps) for part in record.parts] == [10, 10]
    found = compared(straight, record)
    assert found.verdict == "parity", found.reason
    assert float(found.loss_deviation.max()) < 1e-12
    steps = part_of(run, 1) / "steps.f64"
    rows = np.fromfile(steps, "<f8").reshape(10, -1)
    rows[3, 1] *= 1 + 1e-9
    rows.tofile(steps)
    found = compared(straight, read_record(run))
    assert found.verdict == "divergent"
    assert found.first_failure is not None and found.first_failure.where == "step 13"
