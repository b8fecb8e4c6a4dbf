"""The run record: the folder a run writes. One writer, one reader, one schema.

header.json            what was run, on what, with which versions
steps.jsonl            one line a step: loss sum and count, learning rate, norms, loss scale, seconds
splits/replica_N.jsonl one line a step: the sample ids that replica really received
digests/replica_N.jsonl one line a step: a digest of that replica's parameters, where asked for
memory/rank_N.json     bytes that process held: parameters, slots, all tensors, peak
initial.safetensors, first_gradients.safetensors, final.safetensors   canonical states
summary.json           written last: the run is complete

Lines are flushed step by step, so the record is complete up to its last whole step whatever
kills the run.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from common import __version__
from common.errors import RecordError
from common.spec import Placement, Spec, TrainSpec
from common.spec.base import explain
from common.state import State, load_state

FORMAT = "parity-run-record"
SCHEMA = 1
STEP_FIELDS = (
    "loss_sum",
    "count",
    "learning_rate",
    "gradient_norm",
    "parameter_norm",
    "update_norm",
    "loss_scale",
    "seconds",
)
Column = NDArray[np.float64]
Ids = NDArray[np.int64]
Numbers = tuple[float, ...]
SpecT = TypeVar("SpecT", bound=Spec)


class ScalarSink(Protocol):
    """Where scalars go besides the record."""

    def step(self, step: int, values: dict[str, float]) -> None: ...

    def close(self) -> None: ...


class Header(Spec):
    """What was run, and on what."""

    format: str = FORMAT
    schema_version: int = SCHEMA
    digest: str
    spec: TrainSpec
    placement: Placement
    versions: dict[str, str]
    devices: tuple[str, ...]
    threads: dict[str, int]
    host: str
    git_revision: str | None
    started: str
    data_digest: str | None = None


class Summary(Spec):
    """How the run ended. `eval_*` are sums over the evaluation samples, None where there are none."""

    steps: int
    wall_seconds: float
    eval_loss_sum: float | None = None
    eval_count: float = 0.0
    eval_correct: int = 0


def git_revision() -> str | None:
    """Revision of the toolkit's checkout, with '+' where it has uncommitted changes; None outside one."""
    folder = Path(__file__).parent
    try:
        head = subprocess.run(
            ["git", "-C", folder, "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return head.stdout.strip() or None if head.returncode == 0 else None


def claim_folder(path: Path) -> None:
    """Create the folder of a new record; raises RecordError where one is already there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        taken = next(path.iterdir(), None)
    except OSError as error:
        raise RecordError(f"{path}: cannot be used as an output folder: {error.strerror}") from None
    if taken is not None:
        raise RecordError(f"{path}: already holds {taken.name}; choose a new folder or remove this one")


class RecordWriter:
    """What one process of a run writes: its replicas' sample ids and, on the primary, the rest."""

    def __init__(
        self,
        folder: Path,
        spec: TrainSpec,
        placement: Placement,
        replicas: range,
        facts: dict[str, Any],
        scalars: ScalarSink | None = None,
    ) -> None:
        """Begin a record in a folder claimed by `claim_folder`.

        Args:
            folder: the record.
            spec: resolved.
            placement: as run.
            replicas: the replicas this process holds; the one with replica 0 is the primary.
            facts: versions, devices, threads and the data's digest, for the header.
            scalars: also receives every step's scalars, for TensorBoard.
        """
        self.folder = folder
        self.primary = 0 in replicas
        self._scalars = scalars
        self._full = placement.recording == "full"
        self._steps: IO[str] | None = None
        if self.primary:
            _write_json(folder / "header.json", _header(spec, placement, facts).to_dict())
            self._steps = open(folder / "steps.jsonl", "x", encoding="utf-8")
        self._splits = _lines_by_replica(folder / "splits", replicas)
        self._digests = _lines_by_replica(folder / "digests", replicas if placement.digests else range(0))
        self._rows = 0
        self._started = self._last = time.perf_counter()
        self._held: list[tuple[int, Numbers, list[Ids]]] = []

    def start_clock(self) -> None:
        """The first step begins now; what came before was building."""
        self._started = self._last = time.perf_counter()

    def skip_time(self) -> None:
        """What happened since the last step is not training; the next step begins now."""
        self._last = time.perf_counter()

    def step(
        self,
        step: int,
        learning_rate: float,
        numbers: Sequence[float],
        ids: list[Ids],
        loss_scale: float = 1.0,
    ) -> None:
        """Append one step.

        Args:
            step: from 0.
            learning_rate: the one the step was given.
            numbers: loss sum, count, and the norms of gradient, parameters and update.
            ids: the sample ids each local replica received, in order.
            loss_scale: what float16 multiplied the loss by.
        """
        now = time.perf_counter()
        seconds, self._last = now - self._last, now
        loss_sum, count, *norms = map(float, numbers)
        entry = (step, (loss_sum, count, float(learning_rate), *norms, float(loss_scale), seconds), ids)
        if self._full:
            self._write(*entry)
        else:
            self._held.append(entry)

    def _write(self, step: int, numbers: Numbers, ids: list[Ids]) -> None:
        for file, local_ids in zip(self._splits, ids, strict=True):
            file.write(json.dumps({"step": step, "ids": local_ids.tolist()}) + "\n")
            file.flush()
        self._rows += 1
        if self._steps is None:
            return
        row = dict(zip(STEP_FIELDS, numbers, strict=True))
        self._steps.write(json.dumps({"step": step, **row}) + "\n")
        self._steps.flush()
        if self._scalars is not None:
            self._scalars.step(step, {"loss": row["loss_sum"] / row["count"], **row})

    def digests(self, step: int, digests: Sequence[str]) -> None:
        """Append what `step` left each local replica's parameters at."""
        for file, digest in zip(self._digests, digests, strict=True):
            file.write(json.dumps({"step": step, "parameters": digest}) + "\n")
            file.flush()

    def memory(self, rank: int, measured: dict[str, int]) -> None:
        """What the process of this rank holds, in bytes."""
        (self.folder / "memory").mkdir(exist_ok=True)
        _write_json(self.folder / "memory" / f"rank_{rank}.json", measured)

    def finish(self, evaluation: tuple[float, float, int]) -> None:
        """Mark the run complete; `evaluation` is (loss sum, samples, correct) after the last step."""
        wall_seconds = self._last - self._started
        for entry in self._held:
            self._write(*entry)
        self.close()
        loss_sum, count, correct = evaluation
        summary = Summary(
            steps=self._rows,
            wall_seconds=wall_seconds,
            eval_loss_sum=loss_sum if count and math.isfinite(loss_sum) else None,
            eval_count=count,
            eval_correct=correct,
        )
        if self.primary:
            _write_json(self.folder / "summary.json", summary.to_dict())

    def close(self) -> None:
        """Stop writing. A record without a summary is known to be unfinished."""
        for file in (self._steps, *self._splits, *self._digests, self._scalars):
            if file is not None:
                file.close()


def _header(spec: TrainSpec, placement: Placement, facts: dict[str, Any]) -> Header:
    return Header(
        digest=spec.fingerprint(),
        spec=spec,
        placement=placement,
        versions={**facts["versions"], "python": platform.python_version(), "parity": __version__},
        devices=tuple(facts["devices"]),
        threads=facts["threads"],
        host=platform.node(),
        git_revision=git_revision(),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        data_digest=facts.get("data_digest"),
    )


def _lines_by_replica(folder: Path, replicas: range) -> list[IO[str]]:
    if replicas:
        folder.mkdir(exist_ok=True)
    return [open(folder / f"replica_{r}.jsonl", "x", encoding="utf-8") for r in replicas]


@dataclass(frozen=True)
class RunRecord:
    """A record read back. Columns are float64 arrays over the recorded steps."""

    folder: Path
    header: Header
    summary: Summary | None
    columns: dict[str, Column]

    @property
    def spec(self) -> TrainSpec:
        return self.header.spec

    @property
    def placement(self) -> Placement:
        return self.header.placement

    @property
    def label(self) -> str:
        """Short name for tables."""
        order = self.placement.sample_order_seed
        return self.placement.label + (f" order {order}" if order is not None else "")

    @property
    def steps(self) -> NDArray[np.int64]:
        """The recorded step numbers."""
        return self.columns["step"].astype(np.int64)

    @property
    def loss(self) -> Column:
        """Mean loss of each global batch."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.columns["loss_sum"] / self.columns["count"]

    @cached_property
    def splits(self) -> list[list[Ids]]:
        """ids[replica][row] as recorded by each replica."""
        return [self._read_split(r) for r in range(self.placement.replicas)]

    @cached_property
    def digests(self) -> list[list[str]]:
        """digests[replica][row] of the parameters after each step; none where the run recorded none."""
        if not self.placement.digests:
            return []
        paths = [self.folder / "digests" / f"replica_{r}.jsonl" for r in range(self.placement.replicas)]
        columns = []
        for path in paths:
            rows = _read_lines(path)
            if [row.get("step") for row in rows][: len(self.steps)] != self.steps.tolist():
                raise RecordError(f"{path}: its steps are not those of steps.jsonl")
            columns.append([str(row.get("parameters")) for row in rows[: len(self.steps)]])
        return columns

    @cached_property
    def memory(self) -> list[dict[str, int]]:
        """What each process held, by rank, in bytes."""
        count = self.placement.processes
        return [_read_json(self.folder / "memory" / f"rank_{rank}.json") for rank in range(count)]

    def _read_split(self, replica: int) -> list[Ids]:
        path = self.folder / "splits" / f"replica_{replica}.jsonl"
        rows = _read_lines(path)
        steps = [row.get("step") for row in rows]
        if steps[: len(self.steps)] != self.steps.tolist():
            raise RecordError(f"{path}: its steps are not those of steps.jsonl")
        try:
            found = [np.array(row["ids"]) for row in rows[: len(self.steps)]]
            # An empty list has no integer type yet.
            if all(ids.ndim == 1 and (not len(ids) or ids.dtype == np.int64) for ids in found):
                return [ids.astype(np.int64) for ids in found]
        except (KeyError, ValueError, TypeError, OverflowError):
            pass
        raise RecordError(f"{path}: a line has no list of sample ids")

    def state(self, which: str) -> State:
        """The canonical state `initial`, `first_gradients` or `final`."""
        return load_state(self.folder / f"{which}.safetensors")


def read_record(folder: Path) -> RunRecord:
    """Read a record; raises RecordError with one line for anything missing, cut short or foreign."""
    if not (folder / "header.json").is_file():
        raise RecordError(f"{folder}: not a run record (no header.json)")
    made = _read_json(folder / "header.json")
    if isinstance(made, dict) and {"format", "schema_version"} <= made.keys():
        found = f"{made['format']} {made['schema_version']}"
        if found != f"{FORMAT} {SCHEMA}":
            raise RecordError(
                f"{folder}: written by another format ({found!r}); this reads {FORMAT} {SCHEMA}"
            )
    header = _parse(Header, folder / "header.json")
    if header.digest != header.spec.fingerprint():
        raise RecordError(f"{folder}/header.json: the digest is not that of the spec beside it")
    rows = _read_lines(folder / "steps.jsonl")
    try:
        columns = {name: _column(name, rows) for name in ("step", *STEP_FIELDS)}
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{folder}/steps.jsonl: a line lacks a number for {error}") from None
    numbers = columns["step"]
    if len(numbers) and not np.array_equal(numbers, np.arange(len(numbers)) + numbers[0]):
        raise RecordError(f"{folder}/steps.jsonl: the steps are not consecutive")
    summary_file = folder / "summary.json"
    summary = _parse(Summary, summary_file) if summary_file.exists() else None
    if summary is not None and summary.steps != len(rows):
        raise RecordError(
            f"{folder}: truncated: the summary counts {summary.steps} steps, steps.jsonl holds {len(rows)}"
        )
    return RunRecord(folder, header, summary, columns)


def _column(name: str, rows: list[dict[str, Any]]) -> Column:
    values = [row[name] for row in rows]
    # NumPy would take null for NaN.
    if not all(isinstance(value, int | float) for value in values):
        raise ValueError(repr(name))
    return np.array(values, np.float64)


def _parse(kind: type[SpecT], path: Path) -> SpecT:
    data = _read_json(path)
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise RecordError(f"{path}: {explain(error, data, kind.__name__)}") from None


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise RecordError(f"{path}: not JSON; the file is cut short or foreign") from None


def _read_lines(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise RecordError(f"{path}: not text; the file is foreign") from None
    # A run that was killed may leave half a line; only whole lines count.
    whole = text[: text.rfind("\n") + 1].splitlines()
    try:
        rows: list[dict[str, Any]] = json.loads("[" + ",".join(whole) + "]")
    except (ValueError, RecursionError):
        raise RecordError(f"{path}: a line is not JSON; the file is damaged") from None
    if not all(isinstance(row, dict) for row in rows):
        raise RecordError(f"{path}: a line is not a JSON object; the file is foreign")
    return rows


def _write_json(path: Path, data: Any) -> None:
    temporary = path.with_suffix(".partial")
    temporary.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    os.replace(temporary, path)
