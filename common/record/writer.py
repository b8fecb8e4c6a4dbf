"""Writing a record, step by step."""

from __future__ import annotations

import json
import math
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from parity.common.data.plan import BatchPlan
from parity.common.record.files import append, write_json
from parity.common.record.header import STEP_FIELDS, Summary, header_of
from parity.common.record.invariants import Invariants
from parity.common.record.samples import Ids, SampleWriter
from parity.common.record.violations import ViolationWriter
from parity.common.spec import Instrumentation, Placement, RunOptions, TrainSpec

Numbers = tuple[float, ...]
ROW = struct.Struct(f"<{1 + len(STEP_FIELDS)}d")


class ScalarSink(Protocol):
    """Where scalars go besides the record."""

    def step(self, step: int, values: dict[str, float]) -> None: ...

    def close(self) -> None: ...


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
        kept: Mapping[str, float | None] | None = None,
        run_options: RunOptions = RunOptions(),
        instrumentation: Instrumentation = Instrumentation(),
    ) -> None:
        """Begin a record in a folder claimed by `claim_folder`.

        Args:
            folder: the record.
            spec: resolved.
            placement: as run.
            replicas: the replicas this process holds; the one with replica 0 is the primary.
            facts: versions, devices, threads and the hash of the data, for the header.
            scalars: also receives every step's scalars, for TensorBoard.
            kept: of `StepScalars.kept`, where the run goes on from a checkpoint.
            run_options, instrumentation: as run.
        """
        self.folder = folder
        self.primary = 0 in replicas
        self._replicas = replicas
        self._scalars = scalars
        self._full = run_options.recording == "full"
        self._steps: IO[bytes] | None = None
        if self.primary:
            header = header_of(spec, placement, facts, run_options, instrumentation)
            write_json(folder / "header.json", header.to_dict())
            self._steps = open(folder / "steps.f64", "xb")
        self._samples = SampleWriter(folder / "sample_ids", BatchPlan.of(spec, placement), replicas)
        self._fingerprints: list[IO[str]] = []
        if run_options.digests:
            self._fingerprints = [
                open(path, "x", encoding="utf-8")
                for path in _by_replica(folder / "fingerprints", replicas, "jsonl")
            ]
        self._taps: list[IO[bytes]] = []
        self._violations: ViolationWriter | None = None
        # A replay begins anywhere, and may be fed what no run would be.
        if self._full and replicas and instrumentation.replay is None:
            self._violations = ViolationWriter(folder / "violations", replicas.start)
            self._invariants = Invariants(spec, placement, replicas, kept)
        self._rows = 0
        self._started = self._last = time.perf_counter()
        self._parts: list[float] = []
        self._pending: list[tuple[int, Numbers, list[Ids]]] = []

    def start_clock(self) -> None:
        """The first step begins now; what came before was building."""
        self._started = self._last = time.perf_counter()

    def skip_time(self) -> None:
        """What happened since the last step is not training; the next step begins now."""
        self._last = time.perf_counter()

    def divide_time(self, steps: int) -> None:
        """The time since the last step was that of the next `steps` together; each is given an equal part."""
        now = time.perf_counter()
        self._parts = [(now - self._last) / steps] * steps
        self._last = now

    def step(
        self,
        step: int,
        learning_rate: float,
        numbers: Sequence[float],
        ids: list[Ids],
        loss_scale: float = 1.0,
        updated: bool = True,
        copies: Sequence[float] = (),
        summed: Sequence[float] = (),
    ) -> None:
        """Append one step, and check what must hold in it.

        Args:
            step: from 0.
            learning_rate: the one the step was given.
            numbers: loss sum, count, and the norms of gradient, parameters and update.
            ids: the sample ids each local replica received, in order.
            loss_scale: what float16 multiplied the loss by.
            updated: whether the step was not skipped.
            copies, summed: norms by which replicas are compared, as `Invariants.step` takes them.
        """
        if not self._parts:
            self.divide_time(1)
        seconds = self._parts.pop()
        loss_sum, count, *norms = numbers = tuple(map(float, numbers))
        entry = (step, (loss_sum, count, float(learning_rate), *norms, float(loss_scale), seconds), ids)
        if not self._full:
            self._pending.append(entry)
            return
        self._write(*entry)
        if self._violations is not None:
            given = (learning_rate, numbers, ids, loss_scale, updated, copies, summed)
            self._violations.write(self._invariants.step(step, *given))

    def compare_replicas(self, steps: int, summed: Sequence[float]) -> None:
        """Check that the replicas are equal after the last of so many steps; `summed` as of `step`."""
        if self._violations is not None:
            self._violations.write(self._invariants.before(steps, summed))

    def _write(self, step: int, numbers: Numbers, ids: list[Ids]) -> None:
        self._samples.write(step, ids)
        self._rows += 1
        if self._steps is None:
            return
        append(self._steps, ROW.pack(step, *numbers))
        if self._scalars is not None:
            row = dict(zip(STEP_FIELDS, numbers, strict=True))
            self._scalars.step(step, {"loss": row["loss_sum"] / row["count"], **row})

    def fingerprints(self, step: int, fingerprints: Sequence[str]) -> None:
        """Append what `step` left each local replica's parameters at."""
        for file, fingerprint in zip(self._fingerprints, fingerprints, strict=True):
            file.write(json.dumps({"step": step, "parameters": fingerprint}) + "\n")
            file.flush()

    def tap_names(self, names: Sequence[str]) -> None:
        """What is tapped, in the order of `taps`; once, before the first step."""
        paths = _by_replica(self.folder / "taps", self._replicas, "f64")
        if self.primary:
            write_json(self.folder / "taps" / "names.json", list(names))
        self._taps = [open(path, "xb") for path in paths]

    def taps(self, step: int, values: Sequence[NDArray[np.float64]]) -> None:
        """Append a step's taps: for each local replica an array [names, 2] of sums of squares and projections."""
        for file, table in zip(self._taps, values, strict=True):
            append(file, np.concatenate(([step], np.ravel(table))).astype("<f8").tobytes())

    def phases(self, rank: int, facts: dict[str, Any]) -> None:
        """How long each phase of a step took the process of this rank, and what it sends in one."""
        (self.folder / "phases").mkdir(exist_ok=True)
        write_json(self.folder / "phases" / f"rank_{rank}.json", facts)

    def memory(self, rank: int, measured: dict[str, int]) -> None:
        """What the process of this rank holds, in bytes."""
        (self.folder / "memory").mkdir(exist_ok=True)
        write_json(self.folder / "memory" / f"rank_{rank}.json", measured)

    def finish(self, evaluation: tuple[float, float, int]) -> None:
        """Mark the run complete; `evaluation` is (loss sum, samples, correct) after the last step."""
        wall_seconds = self._last - self._started
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
            write_json(self.folder / "summary.json", summary.to_dict())

    def close(self) -> None:
        """Stop writing. A record without a summary is known to be unfinished."""
        pending, self._pending = self._pending, []
        for entry in pending:
            self._write(*entry)
        for file in (
            self._steps,
            self._samples,
            *self._fingerprints,
            *self._taps,
            self._violations,
            self._scalars,
        ):
            if file is not None:
                file.close()


def _by_replica(folder: Path, replicas: range, ending: str) -> list[Path]:
    if replicas:
        folder.mkdir(exist_ok=True)
    return [folder / f"replica_{replica}.{ending}" for replica in replicas]
