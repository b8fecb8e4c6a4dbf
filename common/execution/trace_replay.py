"""The way through a replay: a part of a run trained once more, looked into, and steps of it taken by themselves."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from parity.common.record.files import write_json
from parity.common.record.history import rates_at
from parity.common.record.trace import (
    EVALUATION,
    FORCED,
    LAYERS,
    TRACE,
    injected_steps,
    read_injected,
    state_file,
    step_folder,
    write_replica,
)
from parity.common.state.canonical import State, load_state, save_state


class TraceReplay:
    """A run (`train.py` of either side) made to do what its replay says.

    probe: looks into steps. state, data: the side's modules. They are asked through the module, since what a
    run does to a state that it begins with, or to a batch, it does to these.
    """

    def __init__(self, run: Any, probe: Any, state: Any, data: Any) -> None:
        self.run, self.replay, self.strategy = run, run.replay, run.strategy
        self.probe, self.state, self.data = probe, state, data
        # Of the steps trained: what the run's own loader and schedule gave.
        self.given: dict[int, tuple[Any, dict[str, float]]] = {}

    def walk(self) -> None:
        """Train the steps, and finish the record; then take those that are forced.

        In this order: what forced steps leave behind is no state of the run.
        """
        run, replay = self.run, self.replay
        forced = None if replay.forced is None else Path(replay.forced)
        numbers = [] if forced is None else injected_steps(forced)
        if replay.first_step and replay.history is not None:
            run.rates = rates_at(run.spec, replay.history, replay.first_step)
        for number, batch in run.batches():
            self.keep_state(number)
            scalars = run.rates.scalars(number)
            if number in numbers:
                self.given[number] = batch, scalars
            if number in replay.trace:
                folder = step_folder(run.out_dir / TRACE, number)
                result = self.traced(folder, number, batch, scalars, self.nothing())
            else:
                result = self.taken(number, batch, scalars)
            run.record(number, scalars, result)
        self.keep_state(replay.stop)
        if replay.evaluation:
            self.evaluated(run.out_dir / TRACE, self.nothing())
        run.finish()
        if forced is None:
            return
        for number in numbers:
            self.force(forced, number)
        begin = step_folder(forced, None) / "state.safetensors"
        if begin.exists():
            self.load(begin)
            self.evaluated(run.out_dir / FORCED, read_injected(forced, None, self.strategy.recorded_replicas))

    def taken(self, number: int, batch: Any, scalars: dict[str, float]) -> Any:
        """Take a step without looking into it."""
        return self.run.step(batch, scalars, number)

    def wait(self, result: Any) -> None:
        """Wait for what a step that nobody records has still on its way."""

    def nothing(self) -> list[State]:
        return [{} for _ in self.strategy.recorded_replicas]

    def keep_state(self, number: int) -> None:
        if number in self.replay.states:
            kept = self.state.export(self.run.model, self.run.optimizer, number)
            if self.run.primary:
                path = state_file(self.run.out_dir, number)
                path.parent.mkdir(exist_ok=True)
                save_state(path, kept)

    def load(self, path: Path) -> None:
        self.state.load(load_state(path), self.run.model, self.run.optimizer)

    def held(self, number: int) -> list[State]:
        run = self.run
        states = self.state.export_replicas(run.model, run.optimizer, run.strategy)
        return [{**each, "step": np.array(number, np.int64)} for each in states]

    def force(self, forced: Path, number: int) -> None:
        """Take a step by itself, from the state and with the tensors found for it."""
        batch, scalars = self.given.get(number) or self.draw(number)
        if self.replay.history is not None:
            scalars = rates_at(self.run.spec, self.replay.history, number).scalars(number)
        self.load(step_folder(forced, number) / "state.safetensors")
        injected = read_injected(forced, number, self.strategy.recorded_replicas)
        folder = step_folder(self.run.out_dir / FORCED, number)
        self.wait(self.traced(folder, number, batch, scalars, injected))

    def draw(self, number: int) -> tuple[Any, dict[str, float]]:
        """Of a step that was not trained: batch and scalars. The batch before it comes first, as in training."""
        run, first = self.run, max(0, number - 1)
        with closing(
            self.data.batches(run.plan, run.samples, run.strategy, range(first, number + 1))
        ) as batches:
            *_, batch = batches
        return batch, run.rates.scalars(number)

    def traced(
        self, folder: Path, number: int, batch: Any, scalars: dict[str, float], injected: list[State]
    ) -> Any:
        before = self.held(number)
        result, states = self.probe.traced(self.run.step, batch, scalars, number, injected)
        for seen, old, new in zip(states, before, self.held(number + 1), strict=True):
            seen |= {f"before/{name}": value for name, value in old.items()}
            seen |= {f"after/{name}": value for name, value in new.items()}
        self.write(folder, states)
        return result

    def evaluated(self, parent: Path, injected: list[State]) -> None:
        run = self.run
        with (
            run.optimizer.averaged(),
            closing(self.data.chunks(run.plan, run.eval_samples, run.strategy)) as batches,
        ):
            batch = next(batches, None)
            if batch is not None:
                self.write(parent / EVALUATION, self.probe.evaluated(batch, injected))

    def write(self, folder: Path, states: list[State]) -> None:
        for replica, seen in zip(self.strategy.recorded_replicas, states, strict=True):
            write_replica(folder, replica, seen)
        if self.run.primary:
            write_json(folder / LAYERS, self.probe.layers)
