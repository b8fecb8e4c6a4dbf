"""Replay: a part of a run trained once more, looked into, and steps of it taken by themselves."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from common.record.files import write_json
from common.record.history import rates_at
from common.state import State, load_state, save_state
from common.trace import (
    EVALUATION,
    FORCED,
    LAYERS,
    TRACE,
    fed_steps,
    read_fed,
    state_file,
    step_folder,
    write_replica,
)
from tf_impl import data, state
from tf_impl.probe import Probe

# Up to as many steps are taken in the graph of those that are looked into: each takes up to twice as long, but
# to trace another graph takes as long as some thousand.
_FEW_STEPS = 500


def walk(run: Any) -> None:
    """Do what the placement's replay says with a run (`train.py`), and finish its record.

    The record is that of the steps trained. It is finished before any step is forced: what these leave
    behind is no state of the run.
    """
    _Walk(run).walk()


class _Walk:
    def __init__(self, run: Any) -> None:
        self.run, self.replay, self.strategy = run, run.placement.replay, run.strategy
        self.probe = Probe(run.spec, run.model, run.strategy)
        self.probe.feeds = self.replay.forced is not None
        # Of the steps trained: what the run's own loader and schedule gave.
        self.given: dict[int, tuple[Any, dict[str, float]]] = {}

    def walk(self) -> None:
        run, replay = self.run, self.replay
        forced = None if replay.forced is None else Path(replay.forced)
        numbers = [] if forced is None else fed_steps(forced)
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
            self.evaluated(run.out_dir / FORCED, read_fed(forced, None, self.strategy.recorded_replicas))

    def taken(self, number: int, batch: Any, scalars: dict[str, float]) -> Any:
        """Take a step without looking into it."""
        looks = bool(self.replay.trace or self.replay.forced)
        if not looks or self.replay.stop - self.replay.first_step > _FEW_STEPS:
            return self.run.step(batch, scalars, number)
        return self.probe.taken(self.run.step, batch, scalars, number)

    def nothing(self) -> list[State]:
        return [{} for _ in self.strategy.recorded_replicas]

    def keep_state(self, number: int) -> None:
        if number in self.replay.states:
            kept = state.export(self.run.model, self.run.optimizer, number)
            if self.run.primary:
                path = state_file(self.run.out_dir, number)
                path.parent.mkdir(exist_ok=True)
                save_state(path, kept)

    def load(self, path: Path) -> None:
        # Through the module: what a run does to a state that it begins with, it does to this one.
        state.load(load_state(path), self.run.model, self.run.optimizer)

    def held(self, number: int) -> list[State]:
        run = self.run
        states = state.export_replicas(run.model, run.optimizer, run.strategy)
        return [{**each, "step": np.array(number, np.int64)} for each in states]

    def force(self, forced: Path, number: int) -> None:
        """Take a step by itself, from the state and with the tensors found for it."""
        batch, scalars = self.given.get(number) or self.draw(number)
        if self.replay.history is not None:
            scalars = rates_at(self.run.spec, self.replay.history, number).scalars(number)
        self.load(step_folder(forced, number) / "state.safetensors")
        fed = read_fed(forced, number, self.strategy.recorded_replicas)
        self.traced(step_folder(self.run.out_dir / FORCED, number), number, batch, scalars, fed)

    def draw(self, number: int) -> tuple[Any, dict[str, float]]:
        """Of a step that was not trained: batch and scalars. The batch before it comes first, as in training."""
        run, first = self.run, max(0, number - 1)
        with closing(data.batches(run.plan, run.samples, run.strategy, range(first, number + 1))) as batches:
            *_, batch = batches
        return batch, run.rates.scalars(number)

    def traced(
        self, folder: Path, number: int, batch: Any, scalars: dict[str, float], fed: list[State]
    ) -> Any:
        before = self.held(number)
        result, states = self.probe.traced(self.run.step, batch, scalars, number, fed)
        for seen, old, new in zip(states, before, self.held(number + 1), strict=True):
            seen |= {f"before/{name}": value for name, value in old.items()}
            seen |= {f"after/{name}": value for name, value in new.items()}
        self.write(folder, states)
        return result

    def evaluated(self, parent: Path, fed: list[State]) -> None:
        run = self.run
        with (
            run.optimizer.averaged(),
            closing(data.chunks(run.plan, run.eval_samples, run.strategy)) as batches,
        ):
            batch = next(batches, None)
            if batch is not None:
                self.write(parent / EVALUATION, self.probe.evaluated(batch, fed))

    def write(self, folder: Path, states: list[State]) -> None:
        for replica, seen in zip(self.strategy.recorded_replicas, states, strict=True):
            write_replica(folder, replica, seen)
        if self.run.primary:
            write_json(folder / LAYERS, self.probe.layers)
