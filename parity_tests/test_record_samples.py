"""Sample ids of long runs and of many replicas: digests see what ids would show, and a kill loses nothing."""

from __future__ import annotations

import base64
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks import tools
from parity.common.base.errors import RecordError
from parity.common.data.plan import BatchPlan, Ids
from parity.common.parity import sample_ids
from parity.common.parity.budget import proof_budget
from parity.common.parity.compare import compare
from parity.common.parity.sample_ids import audit, first_unequal_step
from parity.common.record import RunRecord, mixing, read_record, samples
from parity.common.record.version_0_1 import stored
from parity.common.spec import Placement, TrainSpec
from parity_tests.helpers import ROOT
from parity_tests.helpers.records import DDP, MIRRORED, TORCH, one_line, received_ids, tiny_spec

Step = list[Ids]
STEPS = 700  # three blocks, none of them whole: ids are kept of the first few steps
WHOLE = 5


def spec_of(*assignments: str, steps: int = STEPS) -> TrainSpec:
    data = ("data.train_samples=997", "data.eval_samples=0")
    return tiny_spec(f"steps={steps}", "precision=float64", *data, *assignments)


def placement(replicas: int) -> Placement:
    strategy = "single" if replicas == 1 else "ddp"
    return Placement(framework="torch", strategy=strategy, replicas=replicas)


@pytest.fixture(autouse=True)
def few_whole_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "whole_steps", lambda plan: WHOLE)
    monkeypatch.setattr(tools, "whole_steps", lambda plan: WHOLE)


def written(
    folder: Path, spec: TrainSpec, how: Placement, change: Callable[[int, Step], object] | None = None
) -> RunRecord:
    """A record by the writer itself, one writer a process; `change` spoils a step's ids in place."""
    tools.write_long(folder, spec, how)
    for path in (folder / "sample_ids").iterdir():
        path.unlink()
    plan = BatchPlan.of(spec, how)
    processes = (
        [range(how.replicas)]
        if how.framework == "tensorflow"
        else [range(r, r + 1) for r in range(how.replicas)]
    )
    writers = [samples.SampleWriter(folder / "sample_ids", plan, replicas) for replicas in processes]
    for step in range(spec.steps):
        ids = [plan.local_ids(step, replica) for replica in range(how.replicas)]
        if change is not None:
            change(step, ids)
        for writer, replicas in zip(writers, processes, strict=True):
            writer.write(step, [ids[replica] for replica in replicas])
    for writer in writers:
        writer.close()
    return read_record(folder)


@pytest.mark.parametrize(
    "assignments",
    [["data.split=contiguous"], ["data.split=strided", "data.tail=drop"]],
    ids=["contiguous", "strided"],
)
@pytest.mark.parametrize("how", [TORCH, MIRRORED, placement(3), placement(9)], ids=lambda how: how.label)
def test_digests_of_an_honest_run_are_those_of_its_plan(
    tmp_path: Path, how: Placement, assignments: list[str]
) -> None:
    record = written(tmp_path / "run", spec_of(*assignments), how)
    received, plan = record.received, BatchPlan.of(record.spec, how)
    assert received.whole == WHOLE and not received.kept
    assert received.blocks.shape == (3, how.replicas)
    local = [[len(plan.local_ids(step, r)) for r in range(how.replicas)] for step in range(STEPS)]
    found = audit(record)
    assert found.problems == () and found.audited_steps == found.steps == STEPS
    assert found.samples == np.sum(local) and found.empty_local_batches == np.sum(np.array(local) == 0)
    with pytest.raises(RecordError, match=r"ids of 5 of 700 steps, and hashes of the rest") as error:
        received_ids(record)
    one_line(error.value)


@pytest.mark.parametrize("how", [TORCH, MIRRORED], ids=lambda how: how.label)
@pytest.mark.parametrize("assignment", ["data.split=contiguous", "data.split=strided"])
def test_records_made_at_once_are_those_of_the_writer(
    tmp_path: Path, how: Placement, assignment: str
) -> None:
    """What the benchmark and the tests below build on."""
    spec = spec_of(assignment)
    tools.write_long(tmp_path / "fast", spec, how)
    written(tmp_path / "slow", spec, how)
    for name in ("replica_0.ids", "replica_0.hashes"):
        assert (tmp_path / "fast/sample_ids" / name).read_bytes() == (
            tmp_path / "slow/sample_ids" / name
        ).read_bytes()
    record = read_record(tmp_path / "fast")
    assert record.summary is not None and record.summary.steps == STEPS


def test_records_of_any_replica_counts_are_compared(tmp_path: Path) -> None:
    one, two, nine = (honest_run(tmp_path / str(n), placement(n)) for n in (1, 2, 9))
    assert first_unequal_step(one, two) is None and first_unequal_step(one, nine) is None
    assert np.array_equal(one.received.block_id_hashes(), nine.received.block_id_hashes())
    comparison = compare(one, nine, proof_budget(one))
    assert comparison.verdict == "parity"
    other = honest_run(tmp_path / "seed", TORCH, "seed=1")
    assert first_unequal_step(one, other) == "step 0"
    assert not (one.received.block_id_hashes() == other.received.block_id_hashes()).any()


def honest_run(folder: Path, how: Placement, *assignments: str) -> RunRecord:
    """Files as the writer leaves them, computed at once."""
    tools.write_long(folder, spec_of(*assignments), how)
    return read_record(folder)


def at(step: int, change: Callable[[Step], object]) -> Callable[[int, Step], object]:
    return lambda now, ids: change(ids) if now == step else None


def put(ids: Step, replica: int, value: int) -> None:
    ids[replica][1] = value


def swap(ids: Step) -> None:
    ids[0][1], ids[1][1] = ids[1][1].item(), ids[0][1].item()


def shorten(ids: Step) -> None:
    ids[1] = ids[1][:-1]


# Two replicas of eight samples each at step 400. Whether the global batch is another one, too.
FAULTS: dict[str, tuple[Callable[[Step], object], str, bool]] = {
    "swapped": (swap, "replica 0 received the right batch's samples, but not its own share", False),
    "doubled": (lambda ids: put(ids, 0, ids[0][0]), "replica 0 received sample {0} more than once", True),
    "doubled across": (lambda ids: put(ids, 1, ids[0][0]), "sample {0} went to replicas 0 and 1", True),
    "missing": (shorten, "sample {last} went to no replica (1 of 16 are missing)", True),
    "foreign": (lambda ids: put(ids, 1, 10_000), "went to no replica (1 of 16 are missing)", True),
    "exchanged": (
        lambda ids: ids.reverse(),
        "replica 0 received the right batch's samples, but not its",
        False,
    ),
    "out of order": (lambda ids: ids[1].sort(), "replica 1 received the right batch's samples", False),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("how", [MIRRORED, DDP], ids=lambda how: how.label)
def test_a_fault_beyond_the_whole_steps_is_named_by_step_replica_and_sample(
    tmp_path: Path, fault: str, how: Placement
) -> None:
    change, words, _ = FAULTS[fault]
    record = written(tmp_path / "run", spec_of(), how, at(400, change))
    assert set(record.received.kept) == {400}
    share = BatchPlan.of(record.spec, how).local_ids(400, 0), BatchPlan.of(record.spec, how).local_ids(400, 1)
    words = words.format(share[0][0], last=share[1][-1])
    (problem,) = audit(record).problems
    assert problem.startswith("step 400: ") and words in problem, problem


@pytest.mark.parametrize("fault", FAULTS)
def test_digests_alone_see_every_fault(tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change, _, other_batch = FAULTS[fault]
    monkeypatch.setattr(samples, "WRONG_STEPS", 0)
    record = written(tmp_path / "run", spec_of(), MIRRORED, at(400, change))
    assert not record.received.kept
    found = audit(record)
    assert len(found.problems) == 1, found.problems
    assert found.problems[0].startswith("steps 256 to 511: replica ")
    honest = honest_run(tmp_path / "honest", TORCH)
    assert first_unequal_step(honest, record) == ("steps 256 to 511" if other_batch else None)
    # As an audit that did not draw the block would leave it to the comparison.
    monkeypatch.setattr(sample_ids, "_chosen_blocks", lambda record, plan: [0])
    bounded = audit(record)
    assert bounded.passed and bounded.audited_steps == 256 < bounded.steps
    comparison = compare(honest, record, proof_budget(honest))
    assert comparison.checks[0].passed == (not other_batch)
    if other_batch:
        assert comparison.checks[0].where == "steps 256 to 511" and comparison.verdict == "divergent"
    else:
        assert comparison.checks[0].where.endswith("against the plan, 256 audited steps of 700")


def test_samples_of_two_steps_exchanged_within_a_block_are_seen(tmp_path: Path) -> None:
    """Their ids are the same as a whole, but not at each step."""
    plan = BatchPlan.of(spec_of(), TORCH)
    pair = {300: 306, 306: 300}
    change = lambda step, ids: ids.__setitem__(0, plan.local_ids(pair.get(step, step), 0))  # noqa: E731
    record = written(tmp_path / "run", spec_of(), TORCH, change)
    honest = honest_run(tmp_path / "honest", TORCH)
    assert first_unequal_step(honest, record) == "steps 256 to 511"
    assert [problem.split(":")[0] for problem in audit(record).problems] == ["step 300", "step 306"]


def test_an_audit_of_a_long_record_is_bounded_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_ids, "RECOMPUTED_IDS", 1)
    monkeypatch.setattr(samples, "WRONG_STEPS", 0)
    long = spec_of(steps=2000)
    found = audit(written(tmp_path / "run", long, MIRRORED))
    last = 2000 - 7 * 256
    assert found.passed and found.audited_steps == 256 + last
    assert found.extent == "464 audited steps of 2,000"
    # A block that is not drawn, but holds too few samples, is drawn for that.
    missing = audit(written(tmp_path / "missing", long, MIRRORED, at(800, shorten)))
    assert missing.audited_steps == 512 + last
    (problem,) = missing.problems
    assert problem.startswith("steps 768 to 1023: replica 1 received ")
    whole = audit(written(tmp_path / "short", spec_of(steps=WHOLE), MIRRORED))
    assert whole.audited_steps == WHOLE and whole.extent == "5 steps"


def test_of_a_run_that_always_errs_not_all_ids_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "WRONG_STEPS", 3)
    record = written(tmp_path / "run", spec_of(), MIRRORED, lambda step, ids: ids.reverse())
    assert list(record.received.kept) == [5, 6, 7]
    problems = audit(record).problems
    assert [problem.split(":")[0] for problem in problems] == [
        *(f"step {step}" for step in (0, 1, 2, 3, 4)),
        "step 5",
        "steps 5 to 255",
        *("step 6", "step 7", "steps 256 to 511", "steps 512 to 699"),
    ]


def rewrite(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        rows = np.fromfile(folder / "sample_ids" / name, "<i8").reshape(-1, len(samples.BLOCK_FIELDS))
        change(rows).tofile(folder / "sample_ids" / name)

    return damage


def changed(row: int, field: str, by: int) -> Callable[[np.ndarray], np.ndarray]:
    def change(rows: np.ndarray) -> np.ndarray:
        rows[row, samples.BLOCK_FIELDS.index(field)] += by
        return rows

    return change


DAMAGE: dict[str, Callable[[Path], object]] = {
    "no digests of a replica": lambda f: (f / "sample_ids/replica_1.hashes").unlink(),
    "a block less": rewrite("replica_1.hashes", lambda rows: rows[:-1]),
    "a hole": rewrite("replica_1.hashes", lambda rows: np.delete(rows, 1, axis=0)),
    "a block twice": rewrite("replica_1.hashes", lambda rows: rows[[0, 0, 1, 2]]),
    "another replica's": rewrite("replica_1.hashes", changed(1, "replica", 1)),
    "steps of another block": rewrite("replica_1.hashes", changed(0, "first", 1)),
    "fewer steps": rewrite("replica_0.hashes", changed(2, "steps", -1)),
    "more steps than a block has": rewrite("replica_0.hashes", changed(0, "steps", 6)),
    "no digests at all": lambda f: [path.unlink() for path in (f / "sample_ids").glob("*.hashes")],
    "no ids": lambda f: [path.unlink() for path in (f / "sample_ids").glob("*.ids")],
    "a torn block": lambda f: (f / "sample_ids/replica_1.hashes").write_bytes(
        (f / "sample_ids/replica_1.hashes").read_bytes()[:-3]
    ),
    "garbage": lambda f: (f / "sample_ids/replica_1.hashes").write_bytes(np.random.default_rng(0).bytes(600)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_digests_are_named_in_one_line(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "run"
    assert audit(written(folder, spec_of(steps=600), DDP)).passed
    DAMAGE[damage](folder)
    with pytest.raises(RecordError) as error:
        read_record(folder).received  # noqa: B018
    assert str(folder / "sample_ids") in one_line(error.value)


@pytest.mark.parametrize("field", ["samples", "empty", "multiset", "placed"])
def test_a_changed_digest_is_a_problem(tmp_path: Path, field: str) -> None:
    folder = tmp_path / "run"
    written(folder, spec_of(), DDP)
    rewrite("replica_1.hashes", changed(1, field, 1))(folder)
    (problem,) = audit(read_record(folder)).problems
    assert problem.startswith("steps 256 to 511: replica 1 received ")


def test_words_of_samples_do_not_collide_and_depend_on_everything() -> None:
    """Neighbouring numbers are what digests are made of."""
    steps, ids = np.arange(64), np.arange(512)
    words = mixing.multiset_words(np.repeat(mixing.mix(steps.astype(np.uint64)), 512), np.tile(ids, 64))
    assert len(np.unique(words)) == 64 * 512
    places = mixing.place_words(np.full(16, 32), np.arange(16))
    assert len(np.unique(places)) == 512
    assert len(np.unique(mixing.mix(words[:1] + places))) == 512
    bits = (words[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 0.02, "each bit is set in half of the words"


def test_sums_are_exact_where_runs_are_empty() -> None:
    words = np.array([2**63, 2**63, 7, 1], np.uint64)
    assert mixing.sums(words, np.array([0, 2, 0, 1, 1, 0])).tolist() == [0, 0, 0, 7, 1, 0]


WRITES_FOR_EVER = """
import sys
from pathlib import Path
from parity.common.data.plan import BatchPlan
from parity.common.record import RecordWriter, samples
from parity.common.record.invariants import StepFacts
from parity_tests.helpers.records import FACTS, MIRRORED, tiny_spec

samples.whole_steps = lambda plan: 5
spec = tiny_spec("steps=1000000000", "precision=float64")
writer = RecordWriter(Path(sys.argv[1]), spec, MIRRORED, range(2), FACTS)
plan = BatchPlan.of(spec, MIRRORED)
for step in range(spec.steps):
    ids = [plan.local_ids(step, replica) for replica in range(2)]
    writer.step(step, StepFacts(0.1, (1.5, float(sum(map(len, ids))), 1.0, 2.0, 3.0), ids))
"""


def test_a_kill_loses_no_whole_step(tmp_path: Path) -> None:
    """SIGKILL while a process writes: all steps it had finished are there, and none is wrong."""
    folder = tmp_path / "run"
    folder.mkdir()
    command = [sys.executable, "-c", WRITES_FOR_EVER, str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE) as child:
        try:
            seen, deadline = 0, time.monotonic() + 60
            while seen < 600 and child.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
                path = folder / "steps.f64"
                seen = path.stat().st_size // 72 if path.exists() else 0
        finally:
            child.send_signal(signal.SIGKILL)
            _, said = child.communicate()
    assert child.returncode == -signal.SIGKILL and seen >= 600, said
    record = read_record(folder)
    assert record.summary is None
    assert len(record.steps) >= seen and record.steps.tolist() == list(range(len(record.steps)))
    assert (record.columns["update_norm"] == 3.0).all()
    found = audit(record)
    assert found.problems == () and found.audited_steps >= seen


def test_a_record_of_1024_replicas_is_small_and_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # as many whole steps as a real run keeps
    steps, per_replica = 2000, 2
    size = tools.bytes_a_step(tmp_path / "run", steps, 1024, per_replica)
    assert size < 1000
    record = read_record(tmp_path / "run")
    assert 1 <= record.received.whole < 20
    found = audit(record)
    planned = BatchPlan.of(record.spec, record.placement).batch_sizes(record.steps)
    assert found.passed and found.samples == planned.sum()
    assert 256 < found.audited_steps < steps
    rewrite("replica_0.hashes", changed(1023, "placed", 1))(tmp_path / "run")
    (problem,) = audit(read_record(tmp_path / "run")).problems
    assert "replica 1023 received the right samples, but not its own share in order" in problem


def drawn(page: str, figure: str, trace: int, axis: str) -> np.ndarray:
    """The numbers of a curve as a report's page holds them."""
    (text,) = re.findall(rf'id="figure-{figure}">(.*?)</script>', page)
    values = json.loads(text)["data"][trace][axis]
    return np.frombuffer(base64.b64decode(values["bdata"]), values["dtype"])


@pytest.mark.exhaustive
def test_a_million_steps_are_compared_in_little_memory_and_drawn_with_their_extremes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # as many whole steps as a real run keeps
    steps = 1_000_000
    ((_, peak),) = tools.compare_as_a_process(tmp_path, steps)
    assert peak < 500e6
    result = json.loads((tmp_path / "report" / "report.json").read_text())
    assert result["verdict"] == "parity"
    for found in result["sample_ids"]:
        assert found["problems"] == [] and found["samples"] == record_samples(tmp_path / "a")
        assert 10_000 < found["audited_steps"] < found["steps"] == steps
    page = (tmp_path / "report" / "report.html").read_text()
    assert f"{result['sample_ids'][0]['audited_steps']:,} audited steps of {steps:,}" in page
    records = [read_record(tmp_path / name) for name in "ab"]
    for trace, record in enumerate(records):
        x, y = (drawn(page, "loss", trace, axis) for axis in "xy")
        assert len(x) <= 2000
        assert {0, steps - 1, *(int(place * steps) for place in tools.SPIKES)} <= set(x.tolist())
        assert (y.min(), y.max()) == (record.loss.min(), record.loss.max())
    (check,) = (c for c in result["comparisons"][0]["checks"] if c["name"] == "loss curve")
    assert drawn(page, "deviation", 2, "y").max() == check["deviation"] > 0


def record_samples(folder: Path) -> int:
    record = read_record(folder)
    return int(BatchPlan.of(record.spec, record.placement).batch_sizes(record.steps).sum())


def as_version_0_1(folder: Path) -> None:
    """Give a record's files and header fields the names that version 0.1 gave them."""
    (folder / "sample_ids").rename(folder / "splits")
    for path in (folder / "splits").glob("*.hashes"):
        path.rename(path.with_suffix(".digests"))
    path = folder / "header.json"
    header = json.loads(path.read_text())
    header["digest"], header["data_digest"] = header.pop("spec_hash"), header.pop("data_hash")
    path.write_text(json.dumps(header))


def test_a_record_of_version_0_1_is_read_as_one_of_today(tmp_path: Path) -> None:
    new = written(tmp_path / "new", spec_of(), placement(2))
    written(tmp_path / "old", spec_of(), placement(2))
    as_version_0_1(tmp_path / "old")
    old = read_record(tmp_path / "old")
    assert (old.header.spec_hash, old.header.data_hash) == (new.header.spec_hash, new.header.data_hash)
    assert first_unequal_step(old, new) is None and old.received.whole == new.received.whole == WHOLE
    assert (old.received.block_id_hashes() == new.received.block_id_hashes()).all()
    assert audit(old).problems == ()
    assert compare(new, old, proof_budget(new)).verdict == "parity"


def test_old_names_hide_no_damage(tmp_path: Path) -> None:
    written(tmp_path / "old", spec_of(), placement(2))
    as_version_0_1(tmp_path / "old")
    path = tmp_path / "old" / "header.json"
    header = json.loads(path.read_text())
    path.write_text(json.dumps({**header, "digest": "0" * 16}))
    with pytest.raises(RecordError, match="spec_hash is not that of the spec"):
        read_record(tmp_path / "old")
    path.write_text(json.dumps({**header, "spec_hash": header["digest"]}))
    with pytest.raises(RecordError, match="unknown key"):
        read_record(tmp_path / "old")


@pytest.mark.parametrize(
    ("name", "earlier"),
    [
        ("sample_ids", "splits"),
        ("violations", "breaches"),
        ("fingerprints", "digests"),
        ("fingerprints.f64", "digests.f64"),
    ],
)
def test_what_is_stored_under_either_name_is_found(tmp_path: Path, name: str, earlier: str) -> None:
    assert stored(tmp_path, name) == tmp_path / name
    (tmp_path / earlier).mkdir()
    assert stored(tmp_path, name) == tmp_path / earlier
    (tmp_path / name).mkdir()
    assert stored(tmp_path, name) == tmp_path / name
