"""Schedule specs: the learning rate of each step. Formulas: `common/reference/schedules.py`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from common.spec.base import NonNegativeInt, Number, PositiveInt, Spec


class Constant(Spec):
    """The optimizer's learning rate at every step."""

    kind: Literal["constant"] = "constant"


class WarmupCosine(Spec):
    """Linear warm-up to the optimizer's learning rate, then half a cosine down.

    Step s (from 0) of the warm-up uses (s + 1) / warmup_steps, so the first step already moves.
    """

    kind: Literal["warmup_cosine"] = "warmup_cosine"
    warmup_steps: NonNegativeInt = 0
    decay_steps: PositiveInt | None = Field(None, description="default: the steps after the warm-up")
    final_fraction: Number = Field(0.0, ge=0, le=1)


ScheduleSpec = Annotated[Constant | WarmupCosine, Field(discriminator="kind")]
