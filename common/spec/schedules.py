"""Schedule specs: the learning rate of each step. Formulas: `common/reference/schedules.py`.

Steps count from 0. Fractions are of the learning rate of the optimizer after linear scaling.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, model_validator

from parity.common.spec.base import NonNegativeInt, Number, PositiveInt, Spec


class Warmup(Spec):
    """The first `steps` steps rise to the schedule, whose own steps begin after them.

    Step s is at the fraction a + (1 - a) * s / steps (linear), a^(1 - s / steps) (exponential), or a
    (constant), with a the `start_fraction`, of the first rate of the schedule.
    """

    steps: PositiveInt = Field(description="length of the warm-up")
    start_fraction: Number = Field(default=0.0, ge=0, le=1, description="fraction at the first step")
    shape: Literal["linear", "exponential", "constant"] = Field(
        default="linear", description="how the rate rises"
    )

    @model_validator(mode="after")
    def _exponential_starts_above_zero(self) -> Warmup:
        if self.shape == "exponential" and self.start_fraction == 0:
            raise ValueError("an exponential warm-up needs a start_fraction above 0")
        return self


class ScheduleBase(Spec):
    """Fields every schedule has.

    base_batch_size: the linear scaling rule (Goyal et al. 2017): the learning rate is multiplied by
    global_batch_size / base_batch_size. Their gradual warm-up is `warmup` with a start_fraction of
    base_batch_size / global_batch_size.
    """

    warmup: Warmup | None = Field(default=None, description="steps before the schedule begins")
    base_batch_size: PositiveInt | None = Field(
        default=None,
        description="the learning rate is multiplied by global_batch_size / base_batch_size; null: it is not",
    )


class Constant(ScheduleBase):
    """The optimizer's learning rate at every step."""

    kind: Literal["constant"] = "constant"


class WarmupCosine(ScheduleBase):
    """Linear warm-up to the optimizer's learning rate, then half a cosine down.

    Step s (from 0) of the warm-up uses (s + 1) / warmup_steps, so the first step already moves.
    """

    kind: Literal["warmup_cosine"] = "warmup_cosine"
    warmup_steps: NonNegativeInt = Field(default=0, description="steps of a linear warm-up")
    decay_steps: PositiveInt | None = Field(default=None, description="default: the steps after the warm-up")
    final_fraction: Number = Field(default=0.0, ge=0, le=1, description="fraction at the end")

    @model_validator(mode="after")
    def _one_warmup(self) -> WarmupCosine:
        if self.warmup is not None and self.warmup_steps:
            raise ValueError("give warmup or warmup_steps, not both")
        return self


class Step(ScheduleBase):
    """factor^floor(s / every)."""

    kind: Literal["step"] = "step"
    every: PositiveInt = Field(description="steps between two changes")
    factor: Number = Field(default=0.1, gt=0, description="what each change multiplies the rate by")


class Piecewise(ScheduleBase):
    """One fraction for each stretch between boundaries: one more than there are boundaries.

    At s equal to a boundary Keras still takes the fraction before it, PyTorch the one after it.
    """

    conventions = {"at_boundary": ("before", "after")}
    kind: Literal["piecewise"] = "piecewise"
    boundaries: tuple[PositiveInt, ...] = Field(
        min_length=1, description="steps at which the fraction changes, rising"
    )
    fractions: tuple[Annotated[Number, Field(ge=0)], ...] = Field(
        description="of each stretch, one more than there are boundaries"
    )
    at_boundary: Literal["before", "after"] | None = Field(
        default=None, description="which fraction a step at the boundary has: the one before it, or after it"
    )

    @model_validator(mode="after")
    def _suits(self) -> Piecewise:
        if len(self.fractions) != len(self.boundaries) + 1:
            raise ValueError(
                f"{len(self.boundaries)} boundaries need {len(self.boundaries) + 1} fractions,"
                f" received {len(self.fractions)}"
            )
        if any(b <= a for a, b in pairwise(self.boundaries)):
            raise ValueError(f"boundaries must rise, received {list(self.boundaries)}")
        return self


class Exponential(ScheduleBase):
    """decay_rate^(s / decay_steps); a staircase rounds the exponent down."""

    kind: Literal["exponential"] = "exponential"
    decay_rate: Number = Field(gt=0, description="factor of decay_steps steps")
    decay_steps: PositiveInt = Field(
        default=1, description="steps in which the rate is multiplied by decay_rate"
    )
    staircase: bool = Field(default=False, description="change the rate only every decay_steps steps")


class Polynomial(ScheduleBase):
    """f + (1 - f) * (1 - s / decay_steps)^power, with f the final fraction, which is then kept.

    cycle: decay_steps is stretched to its next multiple at or above s, as in Keras.
    """

    kind: Literal["polynomial"] = "polynomial"
    decay_steps: PositiveInt | None = Field(default=None, description="default: the steps after the warm-up")
    power: Number = Field(default=1.0, gt=0, description="exponent of the curve; 1 is a straight line")
    final_fraction: Number = Field(default=0.0, ge=0, description="fraction at the end")
    cycle: bool = Field(default=False, description="begin again each time the end is reached")


class Linear(ScheduleBase):
    """From one fraction to another in `ramp_steps` steps, then the last; PyTorch's LinearLR."""

    kind: Literal["linear"] = "linear"
    ramp_steps: PositiveInt | None = Field(default=None, description="default: the steps after the warm-up")
    start_fraction: Number = Field(default=1.0, ge=0, description="fraction at the first step")
    final_fraction: Number = Field(default=0.0, ge=0, description="fraction at the end")


class CosineRestarts(ScheduleBase):
    """Half cosines, each `stretch` times as long as the one before (Loshchilov and Hutter 2017).

    The k-th cosine starts at shrink^k; each ends at final_fraction.
    """

    conventions = {"stretch": (2.0, 1.0)}
    kind: Literal["cosine_restarts"] = "cosine_restarts"
    first_steps: PositiveInt = Field(description="steps of the first cosine")
    stretch: Number | None = Field(
        default=None, ge=1, description="how many times as long each cosine is as the one before"
    )
    shrink: Number = Field(default=1.0, gt=0, le=1, description="factor of the rate at each restart")
    final_fraction: Number = Field(default=0.0, ge=0, le=1, description="fraction at the end of each cosine")


class OneCycle(ScheduleBase):
    """Up to the optimizer's learning rate and far down again (Smith and Topin 2018), as PyTorch does.

    From 1 / div_factor up to 1 at step rise_fraction * total_steps - 1, then down to
    1 / (div_factor * final_div_factor) at the last step; with three phases, down as long as up, and
    from there to the end. The momentum stays as it is: PyTorch's cycle_momentum=False.
    """

    kind: Literal["one_cycle"] = "one_cycle"
    total_steps: PositiveInt | None = Field(default=None, description="default: the steps after the warm-up")
    rise_fraction: Number = Field(
        default=0.3, gt=0, lt=1, description="share of the steps in which the rate rises"
    )
    anneal: Literal["cosine", "linear"] = Field(default="cosine", description="shape of rise and fall")
    div_factor: Number = Field(default=25.0, gt=0, description="the first rate is 1 / div_factor")
    final_div_factor: Number = Field(
        default=1e4, gt=0, description="the last rate is 1 / (div_factor * final_div_factor)"
    )
    three_phase: bool = Field(default=False, description="fall as long as rise, then fall on to the end")


class InverseSqrt(ScheduleBase):
    """min(t / peak_step, sqrt(peak_step / t)) with t = s + 1 (Vaswani et al. 2017, equation 3).

    The optimizer's learning rate is the peak: d_model^-.5 * peak_step^-.5 in the paper.
    """

    kind: Literal["inverse_sqrt"] = "inverse_sqrt"
    peak_step: PositiveInt = Field(description="step at which the rate is highest")


class ReduceOnPlateau(ScheduleBase):
    """Multiply the rate by `factor` when an epoch's mean training loss stops falling (row 21).

    An epoch is better where its loss is below best - threshold (absolute, Keras) or
    best * (1 - threshold) (relative, PyTorch). `reached`: the rate falls at the epoch that makes
    `patience` worse ones, and the last epoch of a cooldown counts again (Keras). `exceeded`: it falls
    at the epoch after, and no epoch of a cooldown counts (PyTorch). Steps smaller than
    `smallest_change` are not taken. The new rate holds from the next epoch's first step.
    """

    conventions = {
        "threshold_mode": ("absolute", "relative"),
        "patience_is": ("reached", "exceeded"),
        "smallest_change": (0.0, 1e-8),
    }
    kind: Literal["reduce_on_plateau"] = "reduce_on_plateau"
    factor: Number = Field(default=0.1, gt=0, lt=1, description="what a change multiplies the rate by")
    patience: NonNegativeInt = Field(
        default=10, description="epochs without a better one before the rate falls"
    )
    threshold: Number = Field(default=1e-4, ge=0, description="by how much a better epoch is better")
    threshold_mode: Literal["absolute", "relative"] | None = Field(
        default=None, description="absolute: below best - threshold; relative: below best * (1 - threshold)"
    )
    patience_is: Literal["reached", "exceeded"] | None = Field(
        default=None, description="the rate falls when patience is reached, or at the epoch after"
    )
    cooldown: NonNegativeInt = Field(default=0, description="epochs after a change in which none is counted")
    smallest_rate: Number = Field(default=0.0, ge=0, description="the rate does not fall below this")
    smallest_change: Number | None = Field(default=None, ge=0, description="smaller changes are left out")


ScheduleSpec = Annotated[
    Constant
    | WarmupCosine
    | Step
    | Piecewise
    | Exponential
    | Polynomial
    | Linear
    | CosineRestarts
    | OneCycle
    | InverseSqrt
    | ReduceOnPlateau,
    Field(discriminator="kind"),
]
