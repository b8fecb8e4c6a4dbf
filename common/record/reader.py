"""Reading a record back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import RecordError
from common.invariants import Breach
from common.record.breaches import read_breaches
from common.record.files import parse, read_columns, read_json, read_lines
from common.record.header import FORMAT, SCHEMA, STEP_FIELDS, Header, Summary
from common.record.samples import Ids, Received
from common.spec import Placement, TrainSpec
from common.state import State, load_state

Column = NDArray[np.float64]


@dataclass(frozen=True)
class Taps:
    """values[replica, row, name]: (sum of squares, projection) of a tensor, after each step."""

    names: tuple[str, ...]
    values: NDArray[np.float64]


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

    @cached_property
    def label(self) -> str:
        """Short name for tables."""
        order = self.placement.sample_order_seed
        return self.placement.label + (f" order {order}" if order is not None else "")

    @cached_property
    def steps(self) -> NDArray[np.int64]:
        """The recorded step numbers."""
        return self.columns["step"].astype(np.int64)

    @cached_property
    def loss(self) -> Column:
        """Mean loss of each global batch."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.columns["loss_sum"] / self.columns["count"]

    @cached_property
    def received(self) -> Received:
        """What the replicas say they received: sample ids, or digests of them."""
        return Received.read(self.folder / "splits", self.placement.replicas, self.steps)

    @cached_property
    def splits(self) -> list[list[Ids]]:
        """ids[replica][row] as recorded by each replica; RecordError where the record has digests instead."""
        received = self.received
        if received.whole < len(self.steps):
            raise RecordError(
                f"{self.folder}/splits: holds the sample ids of {received.whole} of {len(self.steps)} steps,"
                " and digests of the rest"
            )
        by_step = [received.ids(row) for row in range(len(self.steps))]
        return [[ids[replica] for ids in by_step] for replica in range(self.placement.replicas)]

    @cached_property
    def digests(self) -> list[list[str]]:
        """digests[replica][row] of the parameters after each step; none where the run recorded none."""
        if not self.placement.digests:
            return []
        paths = [self.folder / "digests" / f"replica_{r}.jsonl" for r in range(self.placement.replicas)]
        columns = []
        for path in paths:
            rows = read_lines(path)
            if [row.get("step") for row in rows][: len(self.steps)] != self.steps.tolist():
                raise RecordError(f"{path}: its steps are not those of steps.f64")
            columns.append([str(row.get("parameters")) for row in rows[: len(self.steps)]])
        return columns

    @cached_property
    def breaches(self) -> tuple[Breach, ...]:
        """What the run broke of `common.invariants`, by step."""
        return read_breaches(self.folder / "breaches")

    @cached_property
    def taps(self) -> Taps | None:
        """What was tapped after each step; None where nothing was."""
        if not self.placement.taps:
            return None
        folder, steps = self.folder / "taps", self.steps
        names = tuple(map(str, read_json(folder / "names.json")))
        tables = []
        for path in [folder / f"replica_{r}.f64" for r in range(self.placement.replicas)]:
            found = read_columns(path, 1 + 2 * len(names))[:, : len(steps)]
            # A run that was killed may have tapped one step less than it took.
            missing = len(steps) - found.shape[1]
            if missing > (self.summary is None) or (found[0] != steps[: found.shape[1]]).any():
                raise RecordError(f"{path}: its steps are not those of steps.f64")
            tables.append(found[1:].T)
        values = np.stack([table[: min(map(len, tables))] for table in tables])
        return Taps(names, values.reshape(*values.shape[:2], len(names), 2))

    @cached_property
    def phases(self) -> list[dict[str, Any]]:
        """How long each phase of a step took, by rank; none where that was not measured."""
        if not self.placement.phase_repeats:
            return []
        count = self.placement.processes
        return [read_json(self.folder / "phases" / f"rank_{rank}.json") for rank in range(count)]

    @cached_property
    def memory(self) -> list[dict[str, int]]:
        """What each process held, by rank, in bytes."""
        count = self.placement.processes
        return [read_json(self.folder / "memory" / f"rank_{rank}.json") for rank in range(count)]

    def state(self, which: str) -> State:
        """The canonical state `initial`, `first_gradients` or `final`."""
        return load_state(self.folder / f"{which}.safetensors")


def read_record(folder: Path) -> RunRecord:
    """Read a record; raises RecordError with one line for anything missing, cut short or foreign."""
    if not (folder / "header.json").is_file():
        raise RecordError(f"{folder}: not a run record (no header.json)")
    made = read_json(folder / "header.json")
    if isinstance(made, dict) and {"format", "schema_version"} <= made.keys():
        found = f"{made['format']} {made['schema_version']}"
        if found != f"{FORMAT} {SCHEMA}":
            raise RecordError(
                f"{folder}: written by another format ({found!r}); this reads {FORMAT} {SCHEMA}"
            )
    header = parse(Header, folder / "header.json")
    if header.digest != header.spec.fingerprint():
        raise RecordError(f"{folder}/header.json: the digest is not that of the spec beside it")
    columns = _columns(folder, header.columns)
    numbers = columns["step"]
    if len(numbers) and not (
        numbers[0] >= 0
        and numbers[0].is_integer()
        and (numbers == numbers[0] + np.arange(len(numbers))).all()
    ):
        raise RecordError(f"{folder}/steps.f64: the steps are not consecutive whole numbers")
    summary_file = folder / "summary.json"
    summary = parse(Summary, summary_file) if summary_file.exists() else None
    if summary is not None and summary.steps != len(numbers):
        raise RecordError(
            f"{folder}: truncated: the summary counts {summary.steps} steps, steps.f64 holds {len(numbers)}"
        )
    return RunRecord(folder, header, summary, columns)


def _columns(folder: Path, names: tuple[str, ...]) -> dict[str, Column]:
    missing = [name for name in ("step", *STEP_FIELDS) if names.count(name) != 1]
    if missing:
        raise RecordError(
            f"{folder}/header.json: steps.f64 needs one column {missing[0]!r}, columns are {names}"
        )
    return dict(zip(names, read_columns(folder / "steps.f64", len(names)), strict=True))
