"""Replay: a part of a run trained once more, looked into, and steps of it taken by themselves."""

from __future__ import annotations

from typing import Any

from parity.common.execution.trace_replay import TraceReplay
from parity.torch_impl import data, state
from parity.torch_impl.probe import Probe


def walk(run: Any) -> None:
    """Do what a replay says with a run (`train.py`), and finish its record, that of the steps trained."""
    _TraceReplay(run, Probe(run.spec, run.model, run.strategy), state, data).walk()


class _TraceReplay(TraceReplay):
    def wait(self, result: Any) -> None:
        # What is on its way between the ranks must arrive before the next step sends.
        result.numbers.tolist()
