"""Speedups from interleaved, repeated runs: medians of per-round ratios, with their spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from common.record import RunRecord

# Steps at the start of a run that are not timed: tracing, allocation, caches.
WARM_UP_STEPS = 10

# What is usually reached: replicas -> (low, high).
EXPECTATION = {1: (1.0, 1.0), 2: (1.8, 1.8), 4: (3.5, 3.5), 8: (6.0, 7.0)}


@dataclass(frozen=True)
class Ratio:
    """A ratio of throughputs over rounds: its median, smallest and largest."""

    name: str
    replicas: int
    median: float
    low: float
    high: float
    rounds: int

    @property
    def efficiency(self) -> float:
        """Speedup over the replica count."""
        return self.median / self.replicas


@dataclass(frozen=True)
class Scaling:
    """Throughputs, speedups within each framework, and the frameworks against each other."""

    samples_per_second: dict[str, float]
    speedups: tuple[Ratio, ...]
    between: tuple[Ratio, ...]
    pinned: bool
    timed_steps: int


def throughput(record: RunRecord) -> float:
    """Samples per second: the median over the steps after the warm-up, data and recording included."""
    seconds = record.columns["seconds"][WARM_UP_STEPS:]
    counts = record.columns["count"][WARM_UP_STEPS:]
    if not len(seconds):
        return float("nan")
    return float(np.median(counts / seconds))


def analyse(rounds: Sequence[Sequence[RunRecord]]) -> Scaling | None:
    """Ratios from rounds of runs; every round holds one run of each placement.

    A speedup compares with the framework's own single replica; the frameworks are compared with each
    other at equal replica counts. None where there is nothing to compare.
    """
    labels = [sorted(record.label for record in round_) for round_ in rounds]
    if not rounds or any(names != labels[0] for names in labels):
        return None
    if any(len(record.steps) <= WARM_UP_STEPS for round_ in rounds for record in round_):
        return None
    figures = [{record.label: throughput(record) for record in round_} for round_ in rounds]
    placements = {record.label: record.placement for record in rounds[0]}
    # Where a framework has several single replicas, the first is its baseline.
    singles = [(p.framework, label) for label, p in placements.items() if p.replicas == 1]
    baselines = dict(reversed(singles))
    speedups, between = [], []
    for label, placement in placements.items():
        baseline = baselines.get(placement.framework)
        if placement.replicas > 1 and baseline is not None:
            speedups.append(_ratio(label, placement.replicas, figures, label, baseline))
        for other, other_placement in placements.items():
            same_size = placement.replicas == other_placement.replicas
            if (placement.framework, other_placement.framework) == ("torch", "tensorflow") and same_size:
                between.append(_ratio(f"{label} / {other}", placement.replicas, figures, label, other))
    if not speedups and not between:
        return None
    return Scaling(
        {label: median(figure[label] for figure in figures) for label in placements},
        tuple(speedups),
        tuple(between),
        all(record.header.threads.get("pinned") for record in rounds[0]),
        max(0, len(rounds[0][0].steps) - WARM_UP_STEPS) * len(rounds),
    )


def _ratio(name: str, replicas: int, figures: list[dict[str, float]], above: str, below: str) -> Ratio:
    ratios = [figure[above] / figure[below] for figure in figures]
    return Ratio(name, replicas, median(ratios), min(ratios), max(ratios), len(ratios))
