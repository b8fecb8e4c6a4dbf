"""States on a run's way: whole ones, from which a diagnosis goes to a late step without training all steps before it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from parity.common.record.trace import state_file
from parity.common.state.canonical import save_state

if TYPE_CHECKING:
    from parity.common.execution.run import Run

_MOST = 16  # of one run, evenly spread
_MOST_BYTES = 2**26  # of one run, so that a record stays small; large models keep none
_FEWEST_STEPS = 64  # between two; so many are trained again in no time
_SHARE = 200  # once so many times as long has passed as keeping one takes: half a per cent at most


class KeptStates:
    """When a run of so many steps keeps its state, and what that may cost.

    initial: the state that it begins with. seconds: how long that took to be written.
    """

    def __init__(self, run: Run, initial: Mapping[str, NDArray[np.generic]], seconds: float) -> None:
        self._run, self._seconds, self._at = run, seconds, time.perf_counter()
        fitting = _MOST_BYTES // max(1, sum(value.nbytes for value in initial.values()))
        count = min(_MOST, fitting) if run.run_options.recording == "full" else 0
        steps = run.run_options.steps_of(run.spec.steps)
        self._every = max(_FEWEST_STEPS, -(-steps // (count + 1))) if count else steps
        self._last = run.steps.start

    def due(self, step: int) -> bool:
        """Whether to keep the state before `step`; the same answer in every process."""
        if step // self._every <= self._last // self._every or step >= self._run.steps.stop:
            return False
        self._last = step
        # Only one process's clock may say so.
        long_ago = time.perf_counter() - self._at >= _SHARE * self._seconds
        (said,) = self._run.strategy.agreed([float(self._run.primary and long_ago)])
        return bool(said)

    def keep(self, step: int) -> None:
        """Keep the state before a step. Every process must call it."""
        began = time.perf_counter()
        keep_state(self._run, step)
        self._at = time.perf_counter()
        self._seconds = self._at - began


def keep_state(run: Run, step: int) -> None:
    """Write a run's canonical state before a step. Every process must call it."""
    state = run.side.state.export(run.model, run.optimizer, step)
    if run.primary:
        path = state_file(run.out_dir, step)
        path.parent.mkdir(exist_ok=True)
        save_state(path, state)
