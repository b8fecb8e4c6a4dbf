"""The run record: what is written is what is read, and what is damaged is named."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.common.base.errors import ExternalModelError, NotComparableError, RecordError
from parity.common.base.files import replacing
from parity.common.parity.result import judge
from parity.common.record import RecordWriter, claim_folder, read_record
from parity.common.record.header import STEP_FIELDS
from parity.common.spec import RunOptions, TrainSpec, override
from parity.common.spec.external.mapping import read_mapping
from parity_tests.helpers.matrix import config
from parity_tests.helpers.records import (
    DDP,
    FACTS,
    MIRRORED,
    NUMBERS,
    TORCH,
    Run,
    edit_json,
    one_line,
    received_ids,
    tiny_spec,
)


def refused(folder: Path, *words: str) -> None:
    """Reading everything of the record raises RecordError, in one line that holds all `words`."""
    with pytest.raises(RecordError) as error:
        received_ids(read_record(folder))
    text = one_line(error.value)
    assert all(word in text for word in (str(folder), *words)), text


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    run = Run.of(tiny_spec(), DDP)
    record = run.write(tmp_path / "run")
    assert (record.spec, record.placement) == (run.spec, DDP)
    assert record.header.spec_hash == run.spec.content_hash()
    assert record.header.versions["numpy"] == "2" and "python" in record.header.versions
    assert record.steps.tolist() == list(range(6))
    for name in NUMBERS:
        assert np.array_equal(record.columns[name], run.column(name))
    assert (record.columns["seconds"] >= 0).all()
    assert np.array_equal(record.loss, run.column("loss_sum") / run.column("count"))
    assert [[ids.tolist() for ids in replica] for replica in received_ids(record)] == [
        [ids[r].tolist() for ids in run.ids] for r in range(2)
    ]
    for which, state in run.states.items():
        assert all(np.array_equal(record.state(which)[name], value) for name, value in state.items())
    assert record.summary is not None
    assert (record.summary.steps, record.summary.eval_count, record.summary.eval_correct) == (6, 5, 2)
    assert record.summary.eval_loss_sum == run.evaluation[0]
    assert not list((tmp_path / "run").rglob("*.partial"))


PLAIN = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
NORM = st.floats(min_value=0) | st.just(math.nan)


@given(st.tuples(st.floats(width=64), PLAIN.filter(bool), PLAIN, NORM, NORM, NORM).map(list))
@settings(max_examples=40, deadline=None)
def test_floats_survive_exactly(tmp_path_factory: pytest.TempPathFactory, numbers: list[float]) -> None:
    folder = tmp_path_factory.mktemp("floats") / "run"
    run = Run.of(tiny_spec("steps=1"), TORCH)
    run.numbers[0] = numbers
    row = run.write(folder).columns
    for name, value in zip(NUMBERS, numbers, strict=True):
        assert repr(float(row[name][0])) == repr(value)


OUTSIDE = [
    ("loss_scale", 0.0),
    ("loss_scale", 0.5),
    ("loss_scale", math.nan),
    ("seconds", -1.0),
    ("seconds", math.inf),
]
OUTSIDE += [("count", -1.0), ("learning_rate", -0.1), ("gradient_norm", -2.0), ("update_norm", -math.inf)]


@pytest.mark.parametrize(("column", "value"), OUTSIDE)
def test_a_number_that_no_training_writes_is_refused(tmp_path: Path, column: str, value: float) -> None:
    Run.of(tiny_spec(), TORCH).write(tmp_path / "run")
    path = tmp_path / "run" / "steps.f64"
    table = np.fromfile(path, "<f8").reshape(6, -1)
    table[4, 1 + STEP_FIELDS.index(column)] = value
    table.tofile(path)
    with pytest.raises(RecordError, match=f"{column} is {value!r} at step 4, and must be") as error:
        read_record(tmp_path / "run")
    one_line(error.value)


@pytest.mark.parametrize("name", ["model/a\x1b[2Jkernel", "model/kernel\n✓ parity"])
def test_a_name_that_would_write_on_the_terminal_is_refused(tmp_path: Path, name: str) -> None:
    run = Run.of(tiny_spec(), TORCH)
    run.states["final"][name] = np.zeros(1)
    with pytest.raises(RecordError, match="has control characters") as error:
        run.write(tmp_path / "run").state("final")
    assert one_line(error.value).isprintable()
    (tmp_path / "mapping.yaml").write_text(
        f"keras: a:b\ntorch: c:d\nlayers:\n  - {{keras: {json.dumps(name)}, torch: x}}\n"
    )
    with pytest.raises(ExternalModelError, match="has control characters"):
        read_mapping(tmp_path / "mapping.yaml")


def test_a_device_is_written_to_and_stays_one() -> None:
    leader, follower = os.openpty()
    path = Path(os.ttyname(follower))
    with replacing(path) as place:
        place.write_text("hello")
    assert (os.read(leader, 5), path.is_char_device()) == (b"hello", True)
    os.close(follower)
    os.close(leader)


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_an_evaluation_that_is_not_finite_is_kept_as_none(tmp_path: Path, loss: float) -> None:
    run = Run.of(tiny_spec(), TORCH)
    run.evaluation = (loss, 5, 0)
    summary = run.write(tmp_path / "run").summary
    assert summary is not None and summary.eval_loss_sum is None and summary.eval_count == 5


def test_each_process_writes_its_own_replicas(tmp_path: Path) -> None:
    run = Run.of(tiny_spec(), DDP)
    for rank in (1, 0):
        writer = RecordWriter(tmp_path, run.spec, DDP, range(rank, rank + 1), FACTS)
        assert writer.primary == (rank == 0)
        for step in range(6):
            run.write_step(writer, step, range(rank, rank + 1))
        writer.finish(run.evaluation)
        assert (tmp_path / "summary.json").exists() == (rank == 0)
    record = read_record(tmp_path)
    assert all(np.array_equal(received_ids(record)[1][step], run.ids[step][1]) for step in range(6))


def test_scalars_go_to_the_sink_too(tmp_path: Path) -> None:
    class Sink:
        rows: list[tuple[int, dict[str, float]]] = []
        closed = False

        def step(self, step: int, values: dict[str, float]) -> None:
            self.rows.append((step, values))

        def close(self) -> None:
            self.closed = True

    sink, run = Sink(), Run.of(tiny_spec(), TORCH)
    writer = RecordWriter(tmp_path, run.spec, TORCH, range(1), FACTS, sink)
    for step in range(6):
        run.write_step(writer, step)
    writer.finish(run.evaluation)
    assert sink.closed and [step for step, _ in sink.rows] == list(range(6))
    assert all(set(values) == {"loss", "loss_scale", "seconds", *NUMBERS} for _, values in sink.rows)
    assert sink.rows[2][1]["loss"] == run.column("loss_sum")[2] / run.column("count")[2]


def test_with_recording_off_nothing_is_written_before_the_end(tmp_path: Path) -> None:
    run = Run.of(tiny_spec(), config(TORCH, recording="off"))
    writer = RecordWriter(tmp_path, run.spec, run.placement, range(1), FACTS, run_options=run.options)
    for step in range(6):
        run.write_step(writer, step)
        assert (tmp_path / "steps.f64").read_bytes() == b""
    writer.finish(run.evaluation)
    assert len(read_record(tmp_path).steps) == 6


def test_whole_steps_are_on_disk_as_soon_as_they_are_done(tmp_path: Path) -> None:
    run = Run.of(tiny_spec(), TORCH)
    writer = RecordWriter(tmp_path, run.spec, TORCH, range(1), FACTS)
    for step in range(6):
        run.write_step(writer, step)
        record = read_record(tmp_path)
        assert len(record.steps) == step + 1 == len(received_ids(record)[0])
    writer.close()


@pytest.mark.parametrize("cut", [1, 10, 71])
def test_a_killed_run_is_readable_to_its_last_whole_step_but_not_comparable(tmp_path: Path, cut: int) -> None:
    run = Run.of(tiny_spec(), TORCH)
    run.write(tmp_path / "killed", finished=False)
    steps = tmp_path / "killed" / "steps.f64"
    steps.write_bytes(steps.read_bytes()[:-cut])
    record = read_record(tmp_path / "killed")
    assert record.summary is None
    assert record.steps.tolist() == [0, 1, 2, 3, 4]
    assert len(received_ids(record)[0]) == 5, "the replica's file may be one step ahead"
    whole = run.write(tmp_path / "whole")
    for pair in ([whole, record], [record, whole]):
        with pytest.raises(NotComparableError, match=r"did not finish \(5 of 6 steps\)") as error:
            judge(pair)
        one_line(error.value)


def spoil(name: str, change: Callable[[str], str]) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(change((folder / name).read_text()))


def rows(name: str, kind: str, change: Callable[[np.ndarray], np.ndarray | None]) -> Callable[[Path], object]:
    """Damage to a file of 64-bit words, in place or as a new array; rows of steps.f64."""

    def damage(folder: Path) -> None:
        words = np.fromfile(folder / name, kind)
        if name == STEPS:
            words = words.reshape(-1, 1 + len(STEP_FIELDS))
        changed = change(words)
        (words if changed is None else changed).tofile(folder / name)

    return damage


def steps(change: Callable[[np.ndarray], np.ndarray | None]) -> Callable[[Path], object]:
    return rows(STEPS, "<f8", change)


def ids(change: Callable[[np.ndarray], np.ndarray | None]) -> Callable[[Path], object]:
    return rows(SPLIT, "<i8", change)


def put(at: object, value: float) -> Callable[[np.ndarray], None]:
    return lambda array: array.__setitem__(at, value)


STEPS = "steps.f64"
# One process holds both replicas. An entry is step, replica, number of ids, and the ids: 8 and 8 in the
# first two steps, 3 and 2 in the third.
SPLIT = "sample_ids/replica_0.ids"
ENTRY = 3 + 8
DAMAGE: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "fewer rows than the summary": (steps(lambda rows: rows[:-1]), ("truncated", "6", "5")),
    "more rows than the summary": (lambda f: edit_json(f / "summary.json", steps=4), ("4", "6")),
    "half a last row and a summary": (
        lambda f: (f / STEPS).write_bytes((f / STEPS).read_bytes()[:-9]),
        ("truncated",),
    ),
    "spec hash": (lambda f: edit_json(f / "header.json", spec_hash="0" * 16), ("spec_hash",)),
    "spec changed by hand": (
        lambda f: spoil("header.json", lambda t: t.replace('"seed": 0', '"seed": 1'))(f),
        ("spec_hash",),
    ),
    "a step twice": (steps(lambda rows: np.concatenate([rows[:1], rows])), (STEPS, "consecutive")),
    "a hole in the middle": (steps(lambda rows: np.delete(rows, 2, axis=0)), (STEPS, "consecutive")),
    "a step that is no number": (steps(put((1, 0), math.nan)), (STEPS, "consecutive")),
    "steps that are not whole": (steps(put((slice(None), 0), 0.5)), (STEPS, "consecutive")),
    "half steps": (steps(lambda rows: rows + 0.5), (STEPS, "whole numbers")),
    "steps before the first": (steps(lambda rows: rows - 3), (STEPS, "consecutive")),
    "a column is not named": (lambda f: edit_columns(f, lambda names: names[:-1]), ("steps.f64", "seconds")),
    "a column is named twice": (
        lambda f: edit_columns(f, lambda names: [*names, "count"]),
        ("steps.f64", "count"),
    ),
    "a column too many is named": (
        lambda f: edit_columns(f, lambda names: [*names, "entropy"]),
        (STEPS, "consecutive"),
    ),
    "another program's numbers": (lambda f: (f / STEPS).write_text('{"epoch": 1}\n' * 60), (STEPS,)),
    "no steps file": (lambda f: (f / STEPS).unlink(), (STEPS,)),
    "no ids file": (lambda f: (f / SPLIT).unlink(), ("sample_ids", "replica 0 at step 0")),
    "ids of other steps": (ids(put(4 * ENTRY + 11, 7)), ("sample_ids", "replica 0 at step 3")),
    "ids of another replica": (ids(put(4 * ENTRY + 7, 4)), ("sample_ids", "replica 1 at step 2")),
    "ids twice": (
        ids(lambda words: np.concatenate([words[:ENTRY], words])),
        ("sample_ids", "replica 1 at step 0"),
    ),
    "ids of a third replica": (
        ids(lambda words: np.concatenate([words, [5, 2, 0]])),
        ("sample_ids", "replica 2 at step 5", "there is not"),
    ),
    "ids cut short": (ids(lambda words: words[: 4 * ENTRY + 10]), ("sample_ids", "replica 1 at step 2")),
    "fewer ids than none": (ids(put(2, -1)), ("replica_0", "-1 sample ids")),
    "more ids than there are": (ids(put(2, 2**40)), ("sample_ids", "replica 0 at step 0")),
    "header is a list": (spoil("header.json", lambda t: "[]"), ("header.json",)),
    "header cut short": (spoil("header.json", lambda t: t[:100]), ("header.json", "cut short")),
    "header of another program": (spoil("header.json", lambda t: '{"version": 3}'), ("header.json",)),
    "header without its host": (spoil("header.json", lambda t: t.replace('"host"', '"hast"')), ("host",)),
    "deep nesting": (spoil("header.json", lambda t: "[" * 100_000 + "\n"), ("header.json", "not JSON")),
    "another format": (lambda f: edit_json(f / "header.json", format="mlflow"), ("another format", "mlflow")),
    "an older schema": (lambda f: edit_json(f / "header.json", schema_version=1), ("another format", "1")),
    "a later schema": (lambda f: edit_json(f / "header.json", schema_version=3), ("another format", "3")),
    "a later schema with more in it": (
        lambda f: edit_json(f / "header.json", schema_version=3, cluster="x"),
        ("another format", "3"),
    ),
    "summary cut short": (spoil("summary.json", lambda t: t[:9]), ("summary.json", "cut short")),
    "summary of another program": (spoil("summary.json", lambda t: '{"loss": 1}'), ("summary.json",)),
}


def edit_columns(folder: Path, change: Callable[[list[str]], list[str]]) -> None:
    path = folder / "header.json"
    edit_json(path, columns=change(json.loads(path.read_text())["columns"]))


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_named_in_one_line(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "run"
    record = Run.of(tiny_spec(), MIRRORED).write(folder)
    assert len(received_ids(record)) == 2, "the undamaged record is read"
    change, words = DAMAGE[damage]
    change(folder)
    refused(folder, *words)


@pytest.mark.parametrize("name", ["header.json", STEPS, "summary.json", SPLIT])
def test_binary_garbage_is_named_in_one_line(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "run"
    Run.of(tiny_spec(), MIRRORED).write(folder)
    (folder / name).write_bytes(os.urandom(400) + b"\xff\n")
    refused(folder, "sample_ids" if name == SPLIT else name)


def test_what_is_no_record_is_called_so(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "notes.txt").write_text("hello")
    (tmp_path / "file").write_text("hello")
    for name in ("empty", "foreign", "file", "absent"):
        refused(tmp_path / name, "not a run record")


def test_a_record_without_its_final_state_says_so(tmp_path: Path) -> None:
    record = Run.of(tiny_spec(), TORCH).write(tmp_path / "run")
    (tmp_path / "run" / "final.safetensors").unlink()
    with pytest.raises(RecordError, match="final"):
        record.state("final")


def test_a_folder_is_claimed_only_where_it_is_empty(tmp_path: Path) -> None:
    claim_folder(tmp_path / "a" / "b")
    claim_folder(tmp_path / "a" / "b")  # an empty folder is as good as none
    (tmp_path / "a" / "b" / "thesis.tex").write_text("")
    with pytest.raises(RecordError, match=r"already holds thesis\.tex") as error:
        claim_folder(tmp_path / "a" / "b")
    one_line(error.value)
    with pytest.raises(RecordError, match="cannot be used as an output folder") as error:
        claim_folder(tmp_path / "a" / "b" / "thesis.tex")
    one_line(error.value)


def test_a_writer_never_writes_over_a_record(tmp_path: Path) -> None:
    run = Run.of(tiny_spec(), TORCH)
    run.write(tmp_path / "run")
    before = (tmp_path / "run" / STEPS).read_bytes()
    with pytest.raises(FileExistsError):
        RecordWriter(tmp_path / "run", run.spec, TORCH, range(1), FACTS)
    assert (tmp_path / "run" / STEPS).read_bytes() == before


def test_headers_hold_plain_json(tmp_path: Path) -> None:
    Run.of(tiny_spec(), DDP).write(tmp_path / "run")
    header = json.loads((tmp_path / "run" / "header.json").read_text())
    assert header["format"] == "parity-run-record"
    assert header["spec"]["optimizer"]["momentum_form"] == "velocity", "the spec is written resolved"
    assert header["placement"]["strategy"] == "ddp"


TAPPED = RunOptions(taps=True, phase_repeats=2)
NAMES = ("activations/dense", "gradients/dense/kernel", "updates/dense/kernel")


def tapped(folder: Path, finished: bool = True) -> np.ndarray:
    """A record with taps and phases; returns its taps [replica, row, name, 2]."""
    folder.mkdir()
    run = Run.of(tiny_spec(), DDP)
    values = np.random.default_rng(0).standard_normal((2, 6, 3, 2))
    for rank in (0, 1):
        writer = RecordWriter(folder, run.spec, DDP, range(rank, rank + 1), FACTS, run_options=TAPPED)
        writer.tap_names(NAMES)
        for step in range(6):
            run.write_step(writer, step, range(rank, rank + 1))
            writer.taps(step, [values[rank, step]])
        writer.of_rank(
            "phases", rank, {"seconds": {"forward": [0.1, 0.2]}, "messages": [["all_reduce", 8 + rank]]}
        )
        if finished:
            writer.finish(run.evaluation)
        else:
            writer.close()
    return values


def test_taps_and_phases_are_read_back(tmp_path: Path) -> None:
    values = tapped(tmp_path / "run")
    record = read_record(tmp_path / "run")
    assert record.taps is not None and record.taps.names == NAMES
    assert np.array_equal(record.taps.values, values)
    assert [facts["messages"] for facts in record.phases] == [[["all_reduce", 8]], [["all_reduce", 9]]]
    without = Run.of(tiny_spec(), TORCH).write(tmp_path / "without")
    assert without.taps is None and without.phases == []


def test_taps_of_a_killed_run_end_where_the_first_replica_ends(tmp_path: Path) -> None:
    values = tapped(tmp_path / "run", finished=False)
    path = tmp_path / "run" / "taps" / "replica_1.f64"
    path.write_bytes(path.read_bytes()[:-1])
    found = read_record(tmp_path / "run").taps
    assert found is not None and np.array_equal(found.values, values[:, :5])


@pytest.mark.parametrize(
    "damage",
    [
        lambda f: (f / "names.json").unlink(),
        lambda f: (f / "replica_1.f64").unlink(),
        lambda f: (f / "replica_1.f64").write_bytes((f / "replica_1.f64").read_bytes()[:-1]),
        lambda f: (f / "names.json").write_text('["one"]'),
        lambda f: rows("replica_1.f64", "<f8", put(7, 5.0))(f),
    ],
    ids=["no names", "no replica", "a torn last row", "other names", "another step"],
)
def test_damaged_taps_are_named(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    tapped(tmp_path / "run")
    damage(tmp_path / "run" / "taps")
    with pytest.raises(RecordError, match="taps") as error:
        read_record(tmp_path / "run").taps  # noqa: B018
    one_line(error.value)


def test_the_time_of_several_steps_at_once_is_divided(tmp_path: Path) -> None:
    run = Run.of(tiny_spec(), TORCH)
    writer = RecordWriter(tmp_path, run.spec, TORCH, range(1), FACTS)
    writer.start_clock()
    time.sleep(0.03)
    writer.divide_time(3)
    for step in range(3):
        run.write_step(writer, step)
    run.write_step(writer, 3)
    writer.close()
    seconds = read_record(tmp_path).columns["seconds"]
    assert seconds[0] == seconds[1] == seconds[2] >= 0.01
    assert seconds[3] > 0


def test_a_record_of_version_0_1_is_read(tmp_path: Path) -> None:
    """It has the run options and the replay inside the placement."""
    tapped(tmp_path / "run")
    path = tmp_path / "run" / "header.json"
    header = json.loads(path.read_text())
    more = {**header.pop("run_options"), "replay": header.pop("instrumentation")["replay"]}
    del more["tensorboard"]
    header["placement"] |= more
    path.write_text(json.dumps(header))
    record = read_record(tmp_path / "run")
    assert record.placement == DDP and record.run_options == TAPPED
    assert record.taps is not None and record.taps.names == NAMES
    path.write_text(json.dumps({**header, "placement": {**header["placement"], "tap": True}}))
    with pytest.raises(RecordError, match="tap: unknown key"):
        read_record(tmp_path / "run")


def test_where_pinned_files_are_is_no_part_of_a_specs_hash(tmp_path: Path) -> None:
    """Nor of the hash in a header; one of version 0.1, which depends on it, is read as today's."""

    def at(path: str, pin: str | None) -> TrainSpec:
        source = {"kind": "npz", "path": path, "inputs": "x", "targets": "y", "sha256": pin}
        return override(tiny_spec(), [f"data.source={json.dumps(source)}"]).resolved()

    pinned, moved = at("/here/x.npz", "0" * 64), at("/there/x.npz", "0" * 64)
    assert pinned != moved and pinned.content_hash() == moved.content_hash()
    assert pinned.content_hash() != at("/here/x.npz", "1" * 64).content_hash()
    assert at("/here/x.npz", None).content_hash() != at("/there/x.npz", None).content_hash()
    run = Run.of(pinned, TORCH)
    run.write(tmp_path / "run")
    edit_json(tmp_path / "run" / "header.json", spec_hash=pinned.earlier_hash())
    assert pinned.earlier_hash() != pinned.content_hash()
    assert read_record(tmp_path / "run").header.spec_hash == moved.content_hash()
    edit_json(tmp_path / "run" / "header.json", spec_hash=moved.earlier_hash())
    with pytest.raises(RecordError, match="not that of the spec"):
        read_record(tmp_path / "run")
