"""What a run must know of the steps before it: how they went."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from parity.common.record.reader import read_record
from parity.common.reference import StepScalars
from parity.common.spec import TrainSpec


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
