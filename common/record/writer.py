"""Writing a record, step by step."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from parity.common.data.plan import BatchPlan
from parity.common.record.files import append, write_json
from parity.common.record.header import STEP_FIELDS, header_of, write_summary
from parity.common.record.invariants import Invariants, StepFacts, ViolationWriter
from parity.common.record.samples import Ids, SampleWriter
from parity.common.record.scalars import EventWriter
from parity.common.spec import Instrumentation, Placement, RunOptions, TrainSpec

ROW = struct.Struct(f"<{1 + len(STEP_FIELDS)}d")


class RecordWriter:
    """What one process of a run writes: its replicas' sample ids and, on the primary, the rest."""

    def __init__(
        self,
        folder: Path,
        spec: TrainSpec,
        placement: Placement,
        replicas: range,
        facts: dict[str, Any],
        scalars: EventWriter | None = None,
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
        self._waits = run_options.recording == "off"
        self._files = ExitStack()
        if scalars is not None:
            self._files.callback(scalars.close)
        self._steps: IO[bytes] | None = None
        if self.primary:
            header = header_of(spec, placement, facts, run_options, instrumentation)
            write_json(folder / "header.json", header.to_dict())
            self._steps = self._files.enter_context(open(folder / "steps.f64", "xb"))
        kept_whole = run_options.recording != "curve"
        self._samples = SampleWriter(
            folder / "sample_ids", BatchPlan.of(spec, placement), replicas, kept_whole
        )
        self._files.callback(self._samples.close)
        self._fingerprints = self._of_replicas("fingerprints", "jsonl") if run_options.digests else []
        self._taps: list[IO[bytes]] = []
        self._violations: ViolationWriter | None = None
        # A replay begins anywhere, and may be fed what no run would be.
        if run_options.recording == "full" and replicas and instrumentation.replay is None:
            self._violations = ViolationWriter(folder / "violations", replicas.start)
            self._files.callback(self._violations.close)
            self._invariants = Invariants(spec, placement, replicas, kept)
        self._rows = 0
        self._started = self._last = time.perf_counter()
        self._parts: list[float] = []
        self._pending: list[tuple[int, tuple[float, ...], Sequence[Ids]]] = []

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

    def step(self, step: int, facts: StepFacts) -> None:
        """Append one step, numbered from 0, and check what must hold in it."""
        if not self._parts:
            self.divide_time(1)
        loss_sum, count, *norms = map(float, facts.numbers)
        rate, scale = float(facts.learning_rate), float(facts.loss_scale)
        entry = step, (loss_sum, count, rate, *norms, scale, self._parts.pop()), facts.ids
        if self._waits:
            self._pending.append(entry)
            return
        self._write(*entry)
        if self._violations is not None:
            facts = facts._replace(numbers=(loss_sum, count, *norms))
            self._violations.write(self._invariants.step(step, facts))

    def compare_replicas(self, steps: int, summed: Sequence[float]) -> None:
        """Check that the replicas are equal after the last of so many steps; `summed` as in `StepFacts`."""
        if self._violations is not None:
            self._violations.write(self._invariants.before(steps, summed))

    def _write(self, step: int, numbers: tuple[float, ...], ids: Sequence[Ids]) -> None:
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
            append(file, json.dumps({"step": step, "parameters": fingerprint}).encode() + b"\n")

    def tap_names(self, names: Sequence[str]) -> None:
        """What is tapped, in the order of `taps`; once, before the first step."""
        self._taps = self._of_replicas("taps", "f64")
        if self.primary:
            write_json(self.folder / "taps" / "names.json", list(names))

    def taps(self, step: int, values: Sequence[NDArray[np.float64]]) -> None:
        """Append a step's taps: for each local replica an array [names, 2] of sums of squares and projections."""
        for file, table in zip(self._taps, values, strict=True):
            append(file, np.concatenate(([step], np.ravel(table))).astype("<f8").tobytes())

    def of_rank(self, name: str, rank: int, facts: Mapping[str, Any]) -> None:
        """Facts of the process of a rank: its `phases`, how long each takes and what it sends; its `memory` in bytes."""
        (self.folder / name).mkdir(exist_ok=True)
        write_json(self.folder / name / f"rank_{rank}.json", facts)

    def finish(self, evaluation: tuple[float, float, int]) -> None:
        """Mark the run complete; `evaluation` is (loss sum, samples, correct) after the last step."""
        wall_seconds = self._last - self._started
        self.close()
        if self.primary:
            write_summary(self.folder, self._rows, wall_seconds, evaluation)

    def close(self) -> None:
        """Stop writing. A record without a summary is known to be unfinished."""
        pending, self._pending = self._pending, []
        for entry in pending:
            self._write(*entry)
        self._files.close()

    def _of_replicas(self, name: str, ending: str) -> list[IO[bytes]]:
        if self._replicas:
            (self.folder / name).mkdir(exist_ok=True)
        paths = [self.folder / name / f"replica_{replica}.{ending}" for replica in self._replicas]
        return [self._files.enter_context(open(path, "xb")) for path in paths]
