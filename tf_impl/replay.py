"""Replay: a part of a run trained once more and traced, and steps of it taken by themselves."""

from __future__ import annotations

from typing import Any

from parity.common.execution.run import Run
from parity.common.execution.trace_replay import TraceReplay
from parity.tf_impl.probe import Probe

# Up to as many steps are taken in the graph of those that are traced: each takes up to twice as long, but
# to trace another graph takes as long as some thousand.
_FEW_STEPS = 500


def replay(run: Run) -> None:
    """Do what the run's replay asks for with a run, and finish its record, that of the steps trained."""
    probe = Probe(run.spec, run.model, run.strategy)
    probe.injects = run.replay.forced is not None
    _TraceReplay(run, probe).replay()


class _TraceReplay(TraceReplay):
    def taken(self, number: int, batch: Any, scalars: dict[str, float]) -> Any:
        traces = bool(self.request.trace or self.request.forced)
        if not traces or self.request.stop - self.request.first_step > _FEW_STEPS:
            return super().taken(number, batch, scalars)
        return self.probe.taken(self.run.step, batch, scalars, number)
