"""The learning rate of each step, and the scalars that follow from it; the loss scale, and which updates were made."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from typing import Any

from parity.common.data.plan import BatchPlan
from parity.common.reference.optimizers import step_scalars
from parity.common.reference.optimizers.base import known
from parity.common.spec import schedules as spec_of
from parity.common.spec.schedules import ScheduleBase, Warmup
from parity.common.spec.train import TrainSpec


def learning_rate(spec: TrainSpec, step: int) -> float:
    """Learning rate of a step, counted from 0, as long as no plateau was met."""
    schedule = spec.schedule
    # During the warm-up the schedule's fraction is its first one.
    skipped = schedule.warmup.steps if schedule.warmup is not None else 0
    fraction = _FRACTIONS[type(schedule)](schedule, max(0, step - skipped), max(1, spec.steps - skipped))
    return _warm(schedule, step, fraction, base_rate(spec))


def base_rate(spec: TrainSpec) -> float:
    """The optimizer's learning rate after the linear scaling rule."""
    rate = known(spec.optimizer.learning_rate)
    base = spec.schedule.base_batch_size
    return rate if base is None else rate * spec.global_batch_size / base


# Within these, neither a scaled loss nor a scaled count leaves the normal float32 numbers.
SMALLEST, LARGEST = 2.0**-64, 2.0**64


class LossScaler:
    """Counts the updates of a run and moves its loss scale; without float16 every step is an update.

    `observe` must be told every step in order, or `restore` what another was told. Neither scale nor count
    is part of the canonical state; a checkpoint holds them beside it, as it does what a plateau knows.

    updates: made so far; what bias corrections and the average of the weights count.
    scale: what the next step multiplies its loss by.
    """

    def __init__(self, spec: TrainSpec) -> None:
        self._rule = spec.loss_scale
        self.updates = 0
        self.scale = 1.0 if self._rule is None else known(self._rule.initial)
        self._in_a_row = 0

    def schedule_step(self, step: int) -> int:
        """Where the schedule stands at a step of the run."""
        waits = self._rule is not None and self._rule.schedule == "waits"
        return self.updates if waits else step

    def kept(self) -> dict[str, float | None]:
        """All that it knows, for `restore`."""
        return {"updates": self.updates, "loss_scale": self.scale, "updates_in_a_row": self._in_a_row}

    def restore(self, kept: Mapping[str, float | None]) -> None:
        """Know what `kept` says; raises KeyError where that is something else."""
        self.updates, self.scale = int(known(kept["updates"])), known(kept["loss_scale"])
        self._in_a_row = int(known(kept["updates_in_a_row"]))

    def observe(self, updated: bool) -> None:
        """Take note of whether a step updated the weights."""
        self.updates += updated
        rule = self._rule
        if rule is None:
            return
        self._in_a_row = self._in_a_row + 1 if updated else 0
        factor = 1.0 if updated else rule.backoff
        if self._in_a_row == rule.growth_interval:
            self._in_a_row, factor = 0, rule.growth
        if SMALLEST <= self.scale * factor <= LARGEST:
            self.scale *= factor


class StepScalars:
    """The scalars of each step of one run; it watches the losses for a plateau, and for skipped updates.

    `observe` must be told every step in order, or `restore` what another was told.
    """

    def __init__(self, spec: TrainSpec) -> None:
        self._spec = spec
        self._plateau = _Plateau(spec) if isinstance(spec.schedule, spec_of.ReduceOnPlateau) else None
        self._scale = LossScaler(spec)

    def rate(self, step: int) -> float:
        """Learning rate of a step."""
        step = self._scale.schedule_step(step)
        if self._plateau is None:
            return learning_rate(self._spec, step)
        return _warm(self._spec.schedule, step, 1.0, self._plateau.rate)

    def scalars(self, step: int) -> dict[str, float]:
        """All scalars of a step by name, the learning rate first; the loss scale only in float16."""
        updates = step if self._spec.loss_scale is None else self._scale.updates
        scalars = step_scalars(self._spec.optimizer, updates, self.rate(step))
        return scalars if self._spec.loss_scale is None else {**scalars, "loss_scale": self._scale.scale}

    @property
    def updates(self) -> int:
        """How many of the observed steps updated the weights."""
        return self._scale.updates

    def kept(self) -> dict[str, float | None]:
        """All that it knows, for `restore`. JSON keeps every bit of it; an infinite best loss is None."""
        plateau = {} if self._plateau is None else self._plateau.kept()
        return {**self._scale.kept(), **plateau}

    def restore(self, kept: Mapping[str, float | None]) -> None:
        """Know what `kept` says, instead of having been told every step.

        Raises:
            KeyError: it was kept for another spec.
        """
        self._scale.restore(kept)
        if self._plateau is not None:
            self._plateau.restore(kept)

    def observe(self, step: int, loss_sum: float, count: float, updated: bool = True) -> None:
        """Take note of a step's global loss sum and count, and of whether it updated the weights."""
        self._scale.observe(updated)
        if self._plateau is not None:
            # Of a skipped step the loss may be no number.
            self._plateau.observe(step, *((loss_sum, count) if updated else (0.0, 0.0)))


# What a plateau knows: attributes of it.
_KEPT = ("sum", "count", "best", "rate", "bad", "cooldown")


class _Plateau:
    """Lowers `rate` when the mean loss of an epoch stops falling."""

    def __init__(self, spec: TrainSpec) -> None:
        assert isinstance(spec.schedule, spec_of.ReduceOnPlateau)
        self.schedule = spec.schedule
        self.rate = base_rate(spec)
        samples, batch = spec.data.train_samples, spec.global_batch_size
        self._steps_per_epoch = BatchPlan(samples, batch, 1, tail=spec.data.tail).steps_per_epoch
        self.sum = self.count = 0.0
        self.best = math.inf
        self.bad = self.cooldown = 0

    def kept(self) -> dict[str, float | None]:
        """As that of `StepScalars`."""
        kept = {f"plateau_{name}": getattr(self, name) for name in _KEPT}
        return kept | {"plateau_best": None if math.isinf(self.best) else self.best}

    def restore(self, kept: Mapping[str, float | None]) -> None:
        """As that of `StepScalars`."""
        kept = {**kept, "plateau_best": math.inf if kept["plateau_best"] is None else kept["plateau_best"]}
        for name in _KEPT:
            setattr(self, name, known(kept[f"plateau_{name}"]))

    def observe(self, step: int, loss_sum: float, count: float) -> None:
        self.sum += loss_sum
        self.count += count
        if (step + 1) % self._steps_per_epoch == 0:
            if self.count:
                self._end_epoch(self.sum / self.count)
            self.sum = self.count = 0.0

    def _end_epoch(self, loss: float) -> None:
        schedule, resting = self.schedule, self.cooldown > 0
        threshold = schedule.threshold
        absolute = schedule.threshold_mode == "absolute"
        better = loss < (self.best - threshold if absolute else self.best * (1 - threshold))
        if better:
            self.best = loss
        self.cooldown -= resting
        if schedule.patience_is == "reached":
            # The last epoch of a cooldown counts again.
            self.bad = 0 if resting or better else self.bad
            self.bad += not better and self.cooldown == 0
            over = not better and self.cooldown == 0 and self.bad >= schedule.patience
        else:
            self.bad = 0 if resting or better else self.bad + 1
            over = self.bad > schedule.patience
        if over:
            self.bad, self.cooldown = 0, schedule.cooldown
            lower = max(self.rate * schedule.factor, schedule.smallest_rate)
            if self.rate - lower > known(schedule.smallest_change):
                self.rate = lower


def _warm(schedule: ScheduleBase, step: int, fraction: float, rate: float) -> float:
    """The rate at a step: a fraction of it, which a warm-up takes part of."""
    warmup = schedule.warmup
    if warmup is None or step >= warmup.steps:
        return rate * fraction
    return rate * fraction * _risen(warmup, step)


def _risen(warmup: Warmup, step: int) -> float:
    start, progress = warmup.start_fraction, step / warmup.steps
    if warmup.shape == "linear":
        return start + (1 - start) * progress
    return float(start ** (1 - progress)) if warmup.shape == "exponential" else start


def _warmup_cosine(schedule: spec_of.WarmupCosine, step: int, steps: int) -> float:
    if step < schedule.warmup_steps:
        return (step + 1) / schedule.warmup_steps
    decay_steps = schedule.decay_steps or max(1, steps - schedule.warmup_steps)
    progress = min(1.0, (step - schedule.warmup_steps) / decay_steps)
    return _cosine(1.0, schedule.final_fraction, progress)


def _cosine(start: float, end: float, progress: float) -> float:
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * progress))


def _piecewise(schedule: spec_of.Piecewise, step: int, steps: int) -> float:
    passed = bisect_left if schedule.at_boundary == "before" else bisect_right
    return schedule.fractions[passed(schedule.boundaries, step)]


def _exponential(schedule: spec_of.Exponential, step: int, steps: int) -> float:
    whole = step // schedule.decay_steps
    return float(schedule.decay_rate ** (whole if schedule.staircase else step / schedule.decay_steps))


def _polynomial(schedule: spec_of.Polynomial, step: int, steps: int) -> float:
    span = schedule.decay_steps or steps
    if schedule.cycle:
        span *= max(1, -(-step // span))
    left = 1 - min(step, span) / span
    return schedule.final_fraction + (1 - schedule.final_fraction) * float(left**schedule.power)


def _linear(schedule: spec_of.Linear, step: int, steps: int) -> float:
    progress = min(1.0, step / (schedule.ramp_steps or steps))
    return schedule.start_fraction + (schedule.final_fraction - schedule.start_fraction) * progress


def _cosine_restarts(schedule: spec_of.CosineRestarts, step: int, steps: int) -> float:
    start, length, height = 0.0, float(schedule.first_steps), 1.0
    stretch = known(schedule.stretch)
    if stretch == 1:
        restarts = step // schedule.first_steps
        start, height = restarts * length, schedule.shrink**restarts
    while step >= start + length:
        start, length, height = start + length, length * stretch, height * schedule.shrink
    cosine = height * 0.5 * (1 + math.cos(math.pi * (step - start) / length))
    return schedule.final_fraction + (1 - schedule.final_fraction) * cosine


def _one_cycle(schedule: spec_of.OneCycle, step: int, steps: int) -> float:
    total = schedule.total_steps or steps
    low = 1 / schedule.div_factor
    end = low / schedule.final_div_factor
    top = schedule.rise_fraction * total - 1
    phases = [(top, low, 1.0)]
    if schedule.three_phase:
        phases.append((2 * schedule.rise_fraction * total - 2, 1.0, low))
    phases.append((total - 1, phases[-1][2], end))
    begun = 0.0
    for until, start, goal in phases:
        if step <= until:
            # A phase of no length is at its goal.
            progress = (step - begun) / (until - begun) if until > begun else 1.0
            if schedule.anneal == "linear":
                return start + (goal - start) * progress
            return _cosine(start, goal, progress)
        begun = until
    return end


# (schedule, step after the warm-up, the run's steps after the warm-up) -> fraction of the rate.
_FRACTIONS: dict[type[ScheduleBase], Callable[[Any, int, int], float]] = {
    spec_of.Constant: lambda schedule, step, steps: 1.0,
    spec_of.WarmupCosine: _warmup_cosine,
    spec_of.Step: lambda schedule, step, steps: float(schedule.factor ** (step // schedule.every)),
    spec_of.Piecewise: _piecewise,
    spec_of.Exponential: _exponential,
    spec_of.Polynomial: _polynomial,
    spec_of.Linear: _linear,
    spec_of.CosineRestarts: _cosine_restarts,
    spec_of.OneCycle: _one_cycle,
    spec_of.InverseSqrt: lambda schedule, step, steps: min(
        (step + 1) / schedule.peak_step, math.sqrt(schedule.peak_step / (step + 1))
    ),
    spec_of.ReduceOnPlateau: lambda schedule, step, steps: 1.0,
}
