"""Replay: a part of a run trained once more, looked into, and steps of it taken by themselves."""

from __future__ import annotations

from typing import Any

from parity.common.execution.trace_replay import TraceReplay
from parity.tf_impl import data, state
from parity.tf_impl.probe import Probe

# Up to as many steps are taken in the graph of those that are looked into: each takes up to twice as long, but
# to trace another graph takes as long as some thousand.
_FEW_STEPS = 500


def walk(run: Any) -> None:
    """Do what a replay says with a run (`train.py`), and finish its record, that of the steps trained."""
    probe = Probe(run.spec, run.model, run.strategy)
    probe.injects = run.replay.forced is not None
    _TraceReplay(run, probe, state, data).walk()


class _TraceReplay(TraceReplay):
    def taken(self, number: int, batch: Any, scalars: dict[str, float]) -> Any:
        looks = bool(self.replay.trace or self.replay.forced)
        if not looks or self.replay.stop - self.replay.first_step > _FEW_STEPS:
            return super().taken(number, batch, scalars)
        return self.probe.taken(self.run.step, batch, scalars, number)
