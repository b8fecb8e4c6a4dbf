"""Replay: a part of a run trained once more and traced, and steps of it taken by themselves."""

from __future__ import annotations

from typing import Any

from parity.common.execution.run import Run
from parity.common.execution.trace_replay import TraceReplay
from parity.torch_impl.probe import Probe


def replay(run: Run) -> None:
    """Do what the run's replay asks for with a run, and finish its record, that of the steps trained."""
    _TraceReplay(run, Probe(run.spec, run.model, run.strategy)).replay()


class _TraceReplay(TraceReplay):
    def wait(self, result: Any) -> None:
        # What is on its way between the ranks must arrive before the next step sends.
        result.numbers.tolist()
