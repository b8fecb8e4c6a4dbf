"""Time to a target: what it took to reach a loss or an accuracy. Throughput alone flatters large batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from parity.common.record import RunRecord
from parity.common.scaling.result import Configuration, Target
from parity.common.scaling.statistics import Numbers

# A loss counts as reached where the median of this many steps up to then has reached it.
WINDOW = 9

# (seconds, samples, steps) that it took.
Effort = tuple[float, float, float]


def time_to_loss(configuration: Configuration, records: Sequence[RunRecord], target: float) -> Target:
    """When the running median of the loss reached `target`: medians over the rounds.

    The median of the last 9 steps, so that no lucky batch counts, at the last of them. Seconds are
    from the beginning of the first step, so that the warm-up counts.
    """
    medians = [running_median(record.loss) for record in records]
    hits = [(record, np.flatnonzero(each <= target)) for record, each in zip(records, medians, strict=True)]
    reached = [_effort(record, int(at[0]) + WINDOW) for record, at in hits if len(at)]
    best = min((float(each.min()) for each in medians if len(each)), default=math.nan)
    how = f"running median of {WINDOW} steps"
    return _target(configuration, "loss", target, reached, best, len(records), how)


def time_to_accuracy(configuration: Configuration, records: Sequence[RunRecord], target: float) -> Target:
    """Whether the evaluation after the last step had reached `target`, and what the whole run took."""
    accuracies = [_accuracy(record) for record in records]
    reached = [
        _effort(record, len(record.steps))
        for record, accuracy in zip(records, accuracies, strict=True)
        if accuracy >= target
    ]
    best = float(np.nan if np.isnan(accuracies).all() else np.nanmax(accuracies))
    how = "evaluated after the last step"
    return _target(configuration, "accuracy", target, reached, best, len(records), how)


def _target(
    configuration: Configuration,
    quality: Literal["loss", "accuracy"],
    target: float,
    reached: Sequence[Effort],
    best: float,
    rounds: int,
    how: str,
) -> Target:
    whole = len(reached) == rounds
    effort: Effort = tuple(np.median(reached, axis=0).tolist()) if whole else (math.nan,) * 3
    seconds, _, steps = effort
    if math.isnan(best):
        note = f"no {quality} was recorded"
    elif whole:
        note = f"reached in {seconds:.3g} s, {steps:g} steps ({how})"
    else:
        note = f"not reached in {rounds - len(reached)} of {rounds} runs; the best was {best:.4g} ({how})"
    c = configuration
    return Target(c.label, c.framework, c.replicas, c.mode, quality, target, whole, best, *effort, note)


def _effort(record: RunRecord, steps: int) -> Effort:
    """What the first steps of a record took."""
    seconds, counts = (float(record.columns[name][:steps].sum()) for name in ("seconds", "count"))
    return seconds, counts, float(steps)


def running_median(loss: Numbers) -> Numbers:
    """Return the median of each window of losses, float64 (windows,); one that is not finite counts as infinite."""
    if len(loss) < WINDOW:
        return np.empty(0)
    finite = np.where(np.isfinite(loss), loss, np.inf)
    return np.partition(sliding_window_view(finite, WINDOW), WINDOW // 2, axis=1)[:, WINDOW // 2]


def _accuracy(record: RunRecord) -> float:
    summary = record.summary
    if summary is None or not summary.eval_count:
        return math.nan
    return summary.eval_correct / summary.eval_count
