"""The learning rate of each step."""

from __future__ import annotations

import math

from common.spec.schedules import WarmupCosine
from common.spec.train import TrainSpec


def learning_rate(spec: TrainSpec, step: int) -> float:
    """Learning rate of a step, counted from 0."""
    schedule = spec.schedule
    if not isinstance(schedule, WarmupCosine):
        return spec.optimizer.learning_rate
    if step < schedule.warmup_steps:
        return spec.optimizer.learning_rate * (step + 1) / schedule.warmup_steps
    decay_steps = schedule.decay_steps or max(1, spec.steps - schedule.warmup_steps)
    progress = min(1.0, (step - schedule.warmup_steps) / decay_steps)
    fraction = schedule.final_fraction + (1 - schedule.final_fraction) * 0.5 * (
        1 + math.cos(math.pi * progress)
    )
    return spec.optimizer.learning_rate * fraction
