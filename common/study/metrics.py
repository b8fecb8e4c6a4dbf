"""A record's figures: what a training has come to, and how fast.

A figure that is not finite is the worst that there is: a loss that became NaN, a target that was not reached.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parity.common.base.errors import RecordError
from parity.common.record import RunRecord
from parity.common.scaling.target import WINDOW, running_median
from parity.common.spec import TrainSpec

# Points that a curve is reduced to, each the mean of a stretch of steps.
POINTS = 50


class Metric(NamedTuple):
    """about: what it is, for a sentence. worst: what stands for a value that is not finite. scale, unit: how it is shown."""

    about: str
    worst: float = math.inf
    scale: float = 1.0
    unit: str = ""

    def show(self, value: float, unit: bool = True) -> str:
        """Return a value with its unit, or without."""
        if not math.isfinite(value):
            return "not finite" if value == self.worst or math.isnan(value) else str(value)
        return f"{value * self.scale:.3g}{self.unit if unit else ''}"


METRICS = {
    "final_loss": Metric("final evaluation loss"),
    "score": Metric("final accuracy", -math.inf, 100, " points"),
    "loss_area": Metric("mean training loss over all steps"),
    "curve": Metric("training loss at every step"),
    "steps_to_target": Metric("steps to the target", unit=" steps"),
    "seconds_to_target": Metric("seconds to the target", unit=" s"),
}


def usual_metrics(spec: TrainSpec) -> list[str]:
    """Return the figures that every run of a spec has, but for the curve."""
    evaluated = ["final_loss", *(["score"] if spec.loss.classes else [])] if spec.data.eval_samples else []
    return [*evaluated, "loss_area"]


def figure_of(record: RunRecord, name: str, target_loss: float | None = None) -> float:
    """Return a figure of a finished record, its `worst` where it is not finite.

    Raises:
        RecordError: the record did not finish, or has nothing to take it from.
    """
    summary, worst = record.summary, METRICS[name].worst
    if summary is None or not len(record.steps):
        raise RecordError(f"{record.folder}: the run did not finish")
    if name in ("final_loss", "score"):
        if not summary.eval_count:
            raise RecordError(
                f"{record.folder}: nothing was evaluated, so there is no {name}; leave it out of --metric"
            )
        lost = summary.eval_loss_sum is None
        value = summary.eval_correct / summary.eval_count
        if name == "final_loss":
            value = worst if lost else (summary.eval_loss_sum or 0.0) / summary.eval_count
        return worst if lost else value
    if name == "loss_area":
        value = float(record.loss.mean())
        return value if math.isfinite(value) else worst
    assert target_loss is not None
    reached = np.flatnonzero(running_median(record.loss) <= target_loss)
    if not len(reached):
        return worst
    steps = int(reached[0]) + WINDOW
    return float(steps) if name == "steps_to_target" else float(record.columns["seconds"][:steps].sum())


def curve_of(record: RunRecord) -> NDArray[np.float64]:
    """Return the training loss in at most POINTS stretches, float64 (points,): the mean of each."""
    stretches = np.array_split(record.loss, min(POINTS, len(record.loss)))
    return np.array([stretch.mean() for stretch in stretches])


def middles_of(steps: int) -> NDArray[np.float64]:
    """Return the middle step of each stretch of `curve_of`, float64 (points,)."""
    return np.array([stretch.mean() for stretch in np.array_split(np.arange(steps), min(POINTS, steps))])


def check_metrics(names: Sequence[str], spec: TrainSpec | None) -> None:
    """Raise RecordError for a figure that no run of a spec has."""
    if spec is None:
        return
    for name in names:
        if name in ("final_loss", "score") and name not in usual_metrics(spec):
            raise RecordError(
                f"--metric {name}: the spec evaluates no {'classes' if name == 'score' else 'samples'}"
            )
