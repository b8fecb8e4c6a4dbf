"""Trace replay runner: a part of a run trained once more and traced, and steps of it taken by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parity.common.execution.kept_states import keep_state
from parity.common.record.files import write_json
from parity.common.record.reader import read_record
from parity.common.record.trace import (
    EVALUATION,
    FORCED,
    LAYERS,
    TRACE,
    injected_steps,
    read_injected,
    step_folder,
    write_replica,
)
from parity.common.reference import StepScalars
from parity.common.spec import Replay, TrainSpec
from parity.common.state.canonical import State, load_state

if TYPE_CHECKING:
    from parity.common.execution.run import Batch, Run, Scalars

# In TensorFlow up to as many untraced steps are taken in the graph of those that are traced: each takes up to twice
# as long, but to trace another graph takes as long as some thousand.
_FEW_STEPS = 500


class TraceReplay:
    """Does with a run what its replay asks for. probe: of `probe.py` of its side, traces its steps."""

    def __init__(self, run: Run, request: Replay, probe: Any) -> None:
        self.run, self.request, self.strategy, self.probe = run, request, run.strategy, probe
        probe.injects = request.forced is not None
        # Of the steps trained: what the run's own loader and schedule gave.
        self.given: dict[int, tuple[Batch, Scalars]] = {}

    def replay(self) -> None:
        """Train the steps, and finish the record; then take those that are teacher-forced.

        In this order: what teacher-forced steps leave behind is no state of the run.
        """
        run, replay = self.run, self.request
        nothing: list[State] = [{} for _ in self.strategy.recorded_replicas]
        forced = None if replay.forced is None else Path(replay.forced)
        numbers = [] if forced is None else injected_steps(forced)
        if replay.first_step and replay.history is not None:
            run.rates = rates_at(run.spec, replay.history, replay.first_step)
        for number, batch in run.batches():
            self.keep_state(number)
            scalars = run.scalars(number)
            if number in numbers:
                self.given[number] = batch, scalars
            if number in replay.trace:
                folder = step_folder(run.out_dir / TRACE, number)
                result = self.traced(folder, number, batch, scalars, nothing)
            else:
                result = self.taken(number, batch, scalars)
            run.record(number, scalars, result)
        self.keep_state(replay.stop)
        if replay.evaluation:
            self.evaluated(run.out_dir / TRACE, nothing)
        run.finish()
        if forced is None:
            return
        for number in numbers:
            self.force(forced, number)
        begin = step_folder(forced, None) / "state.safetensors"
        if begin.exists():
            run.load(load_state(begin))
            self.evaluated(run.out_dir / FORCED, read_injected(forced, None, self.strategy.recorded_replicas))

    def taken(self, number: int, batch: Batch, scalars: Scalars) -> Any:
        """Take a step without tracing it."""
        request = self.request
        if (request.trace or request.forced) and request.stop - request.first_step <= _FEW_STEPS:
            return self.probe.taken(batch, scalars, number)
        return self.run.step(batch, scalars, number)

    def keep_state(self, number: int) -> None:
        if number in self.request.states:
            keep_state(self.run, number)

    def force(self, forced: Path, number: int) -> None:
        """Take a step by itself, from the state and with the tensors found for it."""
        batch, scalars = self.given.get(number) or self.draw(number)
        if self.request.history is not None:
            scalars = rates_at(self.run.spec, self.request.history, number).scalars(number)
        self.run.load(load_state(step_folder(forced, number) / "state.safetensors"))
        injected = read_injected(forced, number, self.strategy.recorded_replicas)
        folder = step_folder(self.run.out_dir / FORCED, number)
        result = self.traced(folder, number, batch, scalars, injected)
        # What is on its way between the ranks must arrive before the next step sends.
        self.run.read(result)

    def draw(self, number: int) -> tuple[Batch, Scalars]:
        """Of a step that was not trained: batch and scalars. The batch before it comes first, as in training."""
        run, first = self.run, max(0, number - 1)
        with closing(
            run.side.data.batches(run.plan, run.samples, run.strategy, range(first, number + 1))
        ) as batches:
            *_, batch = batches
        return batch, run.rates.scalars(number)

    def traced(self, folder: Path, number: int, batch: Batch, scalars: Scalars, injected: list[State]) -> Any:
        before = states_of_replicas(self.run, number)
        result, states = self.probe.traced(batch, scalars, number, injected)
        for seen, old, new in zip(states, before, states_of_replicas(self.run, number + 1), strict=True):
            seen |= {f"before/{name}": value for name, value in old.items()}
            seen |= {f"after/{name}": value for name, value in new.items()}
        self.write(folder, states)
        return result

    def evaluated(self, parent: Path, injected: list[State]) -> None:
        run = self.run
        with (
            run.optimizer.averaged(),
            closing(run.side.data.chunks(run.plan, run.eval_samples, run.strategy)) as batches,
        ):
            batch = next(batches, None)
            if batch is not None:
                self.write(parent / EVALUATION, self.probe.evaluated(batch, injected))

    def write(self, folder: Path, states: list[State]) -> None:
        for replica, seen in zip(self.strategy.recorded_replicas, states, strict=True):
            write_replica(folder, replica, seen)
        if self.run.primary:
            write_json(folder / LAYERS, self.probe.layers)


def states_of_replicas(run: Run, number: int) -> list[State]:
    """What each replica that this process speaks for holds before a step."""
    states = run.side.state.export_replicas(run.model, run.optimizer, run.strategy)
    return [{**each, "step": np.array(number, np.int64)} for each in states]


def rates_at(spec: TrainSpec, history: str | None, step: int) -> StepScalars:
    """What gives the scalars of a step, having been told the steps before it that a record holds."""
    scalars = StepScalars(spec)
    for number, loss_sum, count, norm in _rows_before(history, step):
        # Only gradients that have overflowed keep a step from being an update.
        scalars.observe(int(number), loss_sum, count, spec.loss_scale is None or bool(np.isfinite(norm)))
    return scalars


def _rows_before(history: str | None, step: int) -> Iterator[tuple[float, ...]]:
    """(step, loss sum, count, gradient norm) of a record, and before it of those that it went on from."""
    if history is None:
        return
    record = read_record(Path(history))
    replay, columns = record.header.instrumentation.replay, record.columns
    if replay is not None:
        yield from _rows_before(replay.history, min(step, replay.first_step))
    names = ("step", "loss_sum", "count", "gradient_norm")
    rows = zip(*(columns[name].tolist() for name in names), strict=True)
    yield from (row for row in rows if row[0] < step)
