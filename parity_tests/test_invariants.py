"""What must hold in every run: each breach is seen in its step and told, and clean runs have none."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parity.common.base.errors import RecordError
from parity.common.parity.result import judge
from parity.common.record import RecordWriter, claim_folder, invariants, read_record
from parity.common.record.invariants import (
    FINITE,
    GRADIENT,
    MOVEMENT,
    REPLICAS,
    SAMPLES,
    SCALE,
    SCHEDULE,
    Invariants,
    StepFacts,
    Violation,
    read_violations,
)
from parity.common.reference.schedules import SMALLEST, LossScaler
from parity.common.report.files import to_json, write_data
from parity.common.spec import Placement, TrainSpec
from parity_tests.helpers.matrix import config
from parity_tests.helpers.records import DDP, FACTS, MIRRORED, TORCH, Run, one_line, tiny_spec

SPEC = tiny_spec("steps=12")
LOW = ("steps=12", "schedule={kind: constant}", "precision=float16_mixed")
FLOAT16 = tiny_spec(*LOW, "loss_scale={initial: 4.0, growth_interval: 3}")
PLATEAU = tiny_spec("steps=12", "schedule={kind: reduce_on_plateau, patience: 0}")

# A row: what `Invariants.step` is given of one step, by name.
Row = dict[str, object]


def rows_of(spec: TrainSpec, placement: Placement = MIRRORED) -> list[Row]:
    """What an honest run tells of its steps."""
    run = Run.of(spec, placement)
    rates, scales = invariants.StepScalars(spec), LossScaler(spec)
    found: list[Row] = []
    for step, (numbers, ids) in enumerate(zip(run.numbers.tolist(), run.ids, strict=True)):
        loss_sum, count, _, *norms = numbers
        # The made-up parameters are large beside their updates, as real ones.
        numbers = [loss_sum, count, norms[0], 10 + norms[1], norms[2]]
        found.append(
            {"learning_rate": rates.rate(step), "numbers": numbers, "ids": ids, "loss_scale": scales.scale}
        )
        rates.observe(step, loss_sum, count)
        scales.observe(True)
    return found


def broken(
    rows: list[Row], spec: TrainSpec = SPEC, placement: Placement = MIRRORED, rank: int = -1
) -> list[Violation]:
    """The breaches that a process finds: the one of all replicas, or that of one."""
    replicas = range(placement.replicas) if rank < 0 else range(rank, rank + 1)
    checks = Invariants(spec, placement, replicas)
    found = []
    for step, row in enumerate(rows):
        ids = row["ids"]
        assert isinstance(ids, list)
        facts = StepFacts(**{**row, "ids": [ids[replica] for replica in replicas]})  # type: ignore[arg-type]
        found += checks.step(step, facts)
    return found


@pytest.mark.parametrize("spec", [SPEC, FLOAT16, PLATEAU], ids=["plain", "float16", "plateau"])
@pytest.mark.parametrize("placement", [TORCH, DDP, MIRRORED], ids=lambda p: p.label)
def test_an_honest_run_breaks_nothing(spec: TrainSpec, placement: Placement) -> None:
    assert broken(rows_of(spec, placement), spec, placement) == []


def number(place: int, value: float, *steps: int) -> Callable[[list[Row]], None]:
    """Another loss sum, count, or norm of gradient, parameters or update, at some steps."""

    def change(rows: list[Row]) -> None:
        for step in steps:
            rows[step]["numbers"][place] = value  # type: ignore[index]

    return change


def put(name: str, value: object, step: int = 4) -> Callable[[list[Row]], None]:
    return lambda rows: rows[step].__setitem__(name, value)


def ids(function: Callable[[list[np.ndarray]], object], step: int = 4) -> Callable[[list[Row]], None]:
    return lambda rows: function(rows[step]["ids"])  # type: ignore[arg-type]


def doubled(now: list[np.ndarray]) -> None:
    now[1][0] = now[1][1]


def shared(now: list[np.ndarray]) -> None:
    now[1] = now[0]


def short(now: list[np.ndarray]) -> None:
    now[1] = now[1][1:]


def foreign(now: list[np.ndarray]) -> None:
    now[0][2] = 10**6


def turned(now: list[np.ndarray]) -> None:
    now[0] = now[0][::-1]


LOSS, COUNT, GRADIENT_NORM, PARAMETER_NORM, UPDATE_NORM = range(5)
BREACHES: dict[str, tuple[Callable[[list[Row]], None], int, str, str]] = {
    "loss is NaN": (number(LOSS, math.nan, 4), 4, FINITE, "loss is nan"),
    "loss is infinite": (number(LOSS, -math.inf, 4), 4, FINITE, "loss is -inf"),
    "gradient is infinite": (number(GRADIENT_NORM, math.inf, 4), 4, FINITE, "norm of the gradient is inf"),
    "parameters are NaN": (number(PARAMETER_NORM, math.nan, 4), 4, FINITE, "norm of the parameters is nan"),
    "no gradient": (number(GRADIENT_NORM, 0.0, 4), 4, GRADIENT, "its norm is 0 at a loss of"),
    "the same gradient": (
        number(GRADIENT_NORM, 0.5, 3, 4, 5),
        5,
        GRADIENT,
        "in 3 steps of different samples",
    ),
    "no update": (number(UPDATE_NORM, 0.0, 4), 4, MOVEMENT, "the update is 0"),
    "parameters stay": (number(PARAMETER_NORM, 9.0, 3, 4, 5), 5, MOVEMENT, "stays at 9.0"),
    "a sample twice on a replica": (ids(doubled), 4, SAMPLES, "replica 1 received sample"),
    "a sample on both replicas": (ids(shared), 4, SAMPLES, "which is replica 0's"),
    "a sample missing": (ids(short), 4, SAMPLES, "did not receive sample"),
    "a sample of nowhere": (ids(foreign), 4, SAMPLES, "1000000, which is not of this batch"),
    "another order": (ids(turned), 4, SAMPLES, "in another order"),
    "learning rate by an ulp": (put("learning_rate", np.nextafter(0.05, 1), 0), 0, SCHEDULE, "not 0.05"),
    "loss scaled without float16": (put("loss_scale", 2.0), 4, SCALE, "multiplied by 2.0, not by 1.0"),
    "a step skipped without float16": (put("updated", False), 4, SCALE, "skipped without float16"),
    "a replica that is another": (
        put("copies", [0.3, 0.3 + 2**-54]),
        4,
        REPLICAS,
        "fingerprint of replica 1",
    ),
    "a replica that is NaN": (put("copies", [0.3, math.nan]), 4, REPLICAS, "fingerprint of replica 1 is nan"),
    "a replica elsewhere, seen later": (put("summed", [0.6 + 2**-53, 0.3]), 3, REPLICAS, "mean"),
    "a replica elsewhere that is NaN": (put("summed", [math.nan, 0.3]), 3, REPLICAS, "mean nan"),
    "unequal from the start": (put("summed", [0.7, 0.3], 0), 0, REPLICAS, "from the start on"),
}


@pytest.mark.parametrize("fault", BREACHES)
def test_a_breach_is_seen_in_its_step(fault: str) -> None:
    change, step, invariant, words = BREACHES[fault]
    rows = rows_of(SPEC)
    change(rows)
    found = broken(rows)
    assert [(violation.step, violation.invariant) for violation in found] == [(step, invariant)]
    assert words in one_line(found[0].text)


def test_every_invariant_has_a_fault() -> None:
    assert {invariant for _, _, invariant, _ in BREACHES.values()} == set(invariants.INVARIANTS)


def all_of(*changes: Callable[[list[Row]], None]) -> Callable[[list[Row]], None]:
    def change(rows: list[Row]) -> None:
        for each in changes:
            each(rows)

    return change


EVERY = range(12)
# What is rightly zero, constant or not finite.
RIGHT: dict[str, tuple[TrainSpec, Callable[[list[Row]], None]]] = {
    "no gradient where nothing is lost": (
        SPEC,
        all_of(*(number(place, 0.0, 4) for place in (LOSS, GRADIENT_NORM, UPDATE_NORM))),
    ),
    "a norm twice": (SPEC, number(GRADIENT_NORM, 0.5, 4, 5)),
    "a batch that is all data": (
        tiny_spec("steps=12", "global_batch_size=37"),
        number(GRADIENT_NORM, 0.5, *EVERY),
    ),
    "updates that no bit of a norm sees": (
        tiny_spec("steps=12", "precision=float32"),
        all_of(number(PARAMETER_NORM, 9.0, *EVERY), number(UPDATE_NORM, 1e-3, *EVERY)),
    ),
    "an update of a gradient that is hardly there": (
        SPEC,
        all_of(number(GRADIENT_NORM, 1e-16, 4), number(UPDATE_NORM, 0.0, 4)),
    ),
    "all replicas are NaN": (SPEC, put("copies", [math.nan, math.nan])),
    "all replicas are NaN, seen later": (SPEC, put("summed", [math.nan, math.nan])),
    "equal replicas": (SPEC, put("summed", [0.6, 0.3])),
}


@pytest.mark.parametrize("case", RIGHT)
def test_what_is_right_is_no_breach(case: str) -> None:
    spec, change = RIGHT[case]
    rows = rows_of(spec)
    change(rows)
    assert broken(rows, spec) == []


def test_a_schedule_that_begins_at_nothing_need_not_move() -> None:
    spec = tiny_spec("steps=12", "schedule={kind: constant, warmup: {steps: 3, start_fraction: 0}}")
    rows = rows_of(spec)
    assert rows[0]["learning_rate"] == 0
    number(UPDATE_NORM, 0.0, 0)(rows)
    assert broken(rows, spec) == []


def test_the_sum_over_many_replicas_may_round() -> None:
    many = Placement(framework="torch", strategy="ddp", replicas=6)
    rows, own = rows_of(SPEC, many), 0.1
    rows[4]["summed"] = [own + own + own + own + own + own, own]
    assert rows[4]["summed"] != [6 * own, own]
    assert broken(rows, SPEC, many) == []
    rows[4]["summed"] = [6 * own * (1 + 1e-14), own]
    assert [violation.step for violation in broken(rows, SPEC, many)] == [3]


def test_a_plateau_is_met_again() -> None:
    rows = rows_of(PLATEAU)
    lowered = [row["learning_rate"] for row in rows]
    assert broken(rows, PLATEAU) == [] and len(set(lowered)) == 1, "the made-up losses fall"
    for row in rows:
        row["numbers"][LOSS] = 7.0 * row["numbers"][COUNT]  # type: ignore[index]
    found = broken(rows, PLATEAU)
    assert {violation.invariant for violation in found} == {SCHEDULE}
    # Two steps are lost to the first epoch, of which nothing is known before it ends, and to patience.
    assert found[0].step == 2 * 3


def test_loss_scales() -> None:
    rows = rows_of(FLOAT16)
    assert [row["loss_scale"] for row in rows[:4]] == [4, 4, 4, 8]
    # A step that overflowed was skipped: nothing in it need be finite, and the next scale is half.
    rows[1] |= {"updated": False, "numbers": [math.inf, 16.0, math.nan, 10.0, 0.0]}
    wrong = broken(rows, FLOAT16)
    assert wrong and {violation.invariant for violation in wrong} == {SCALE} and wrong[0].step == 2
    scaler = LossScaler(FLOAT16)
    for row in rows:
        row["loss_scale"] = scaler.scale
        scaler.observe(bool(row.get("updated", True)))
    assert broken(rows, FLOAT16) == []


def test_a_loss_scale_that_sinks_for_ever() -> None:
    spec = tiny_spec(*LOW, f"loss_scale={{initial: {SMALLEST * 4}}}")
    rows = rows_of(spec)
    scaler = LossScaler(spec)
    for row in rows:
        row |= {"loss_scale": scaler.scale, "updated": False}
        scaler.observe(False)
    found = broken(rows, spec)
    assert (found[0].step, found[0].invariant) == (2, SCALE) and "can sink no further" in found[0].text


def test_a_process_judges_its_own_replicas_only() -> None:
    rows = rows_of(SPEC)
    shared(rows[4]["ids"])  # type: ignore[arg-type]
    number(LOSS, math.nan, 5)(rows)
    rows[7]["summed"] = [0.7, 0.3]
    first, second = (broken(rows, rank=rank) for rank in (0, 1))
    assert [(b.step, b.invariant, b.replica) for b in first] == [(5, FINITE, 0), (6, REPLICAS, 0)]
    assert [(b.step, b.invariant, b.replica) for b in second] == [(4, SAMPLES, 1), (6, REPLICAS, 1)]


@pytest.mark.parametrize("split", ["contiguous", "strided"])
def test_large_batches_are_looked_at_here_and_there(split: str) -> None:
    spec = tiny_spec("data.train_samples=40000", "global_batch_size=9000", f"data.split={split}", "steps=6")
    rows = rows_of(spec)
    assert broken(rows, spec) == []
    later = [row["ids"] for row in rows[2:]] + [rows[0]["ids"], rows[1]["ids"]]
    for row, others in zip(rows, later, strict=True):
        row["ids"] = others
    assert [violation.step for violation in broken(rows, spec)] == list(range(6))


# What is written of it, and what is made of that.


def nan_loss(run: Run) -> None:
    run.column("loss_sum")[3:] = math.nan


def test_breaches_are_written_read_and_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invariants, "KEPT", 2)
    run = Run.of(tiny_spec(), DDP)
    nan_loss(run)
    shared(run.ids[5])
    folder = tmp_path / "run"
    claim_folder(folder)
    for rank in (0, 1):
        writer = RecordWriter(folder, run.spec, DDP, range(rank, rank + 1), FACTS)
        for step in range(6):
            run.write_step(writer, step, range(rank, rank + 1))
            assert (folder / "violations" / f"replica_{rank}.jsonl").exists() == (step >= (3, 5)[rank]), (
                "at once"
            )
        writer.finish(run.evaluation)
    record = read_record(folder)
    assert [(b.step, b.invariant, b.replica) for b in record.violations] == [
        (3, FINITE, 0),
        (4, FINITE, 0),
        (5, SAMPLES, 1),
    ]
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 3
    assert told[0] == "invariant broken at step 3: loss finite: the loss is nan"
    assert told[1] == "invariant broken in 3 steps from 3 on: loss finite"
    assert told[2].startswith(f"invariant broken at step 5: {SAMPLES}: replica 1 received sample")


def test_the_last_step_is_compared_too(tmp_path: Path) -> None:
    run = Run.of(tiny_spec(), DDP)
    writer = RecordWriter(tmp_path, run.spec, DDP, range(1), FACTS)
    for step in range(6):
        run.write_step(writer, step, range(1))
    writer.compare_replicas(6, [0.7, 0.3])
    writer.close()
    assert [(b.step, b.invariant) for b in read_record(tmp_path).violations] == [(5, REPLICAS)]


@pytest.mark.parametrize(
    "more", [{"recording": "off"}, {"replay": {"first_step": 2, "stop": 6, "begin": "state"}}], ids=str
)
def test_what_is_not_a_whole_recorded_run_is_not_checked(tmp_path: Path, more: dict[str, object]) -> None:
    run = Run.of(tiny_spec(), config(TORCH, **more))
    nan_loss(run)
    assert run.write(tmp_path / "run").violations == ()
    assert not (tmp_path / "run" / "violations").exists()


@pytest.mark.parametrize(
    "line", ['{"step": 3}', '{"step": "x", "invariant": "", "text": "", "replica": 0}', "?"]
)
def test_damaged_breaches_are_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "violations").mkdir()
    (tmp_path / "violations" / "replica_0.jsonl").write_text(line + "\n")
    with pytest.raises(RecordError, match=r"replica_0\.jsonl") as error:
        read_violations(tmp_path / "violations")
    one_line(error.value)


@pytest.mark.parametrize("which", ["reference", "candidate", "both"])
def test_a_breach_of_either_fails_the_comparison(tmp_path: Path, which: str) -> None:
    """Two runs can share a mistake: nothing but the invariant tells it."""
    run = Run.of(SPEC, TORCH)
    other = run.copy(MIRRORED)
    for name, one in (("reference", run), ("candidate", other)):
        if which in (name, "both"):
            one.column("learning_rate")[:] = 0.05
    if which != "both":
        # The columns are equal: it is the schedule that both have left.
        for one in (run, other):
            one.column("learning_rate")[:] = 0.05
    result = judge([run.write(tmp_path / "reference"), other.write(tmp_path / "candidate")])
    (comparison,) = result.comparisons
    assert [check.name for check in comparison.checks if not check.passed] == ["invariants"]
    assert comparison.verdict == "divergent"
    assert "schedule as specified" in one_line(comparison.reason)
    write_data(to_json(result), tmp_path / "report.json")
    checks = json.loads((tmp_path / "report.json").read_text())["comparisons"][0]["checks"]
    assert {check["name"]: check["passed"] for check in checks}["invariants"] is False
