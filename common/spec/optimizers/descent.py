"""Gradient descent and Lion: one slot of momentum at most."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from parity.common.spec.base import Number
from parity.common.spec.optimizers.base import COMMON, OptimizerBase


class SGD(OptimizerBase):
    """Gradient descent with momentum. `momentum_form` decides what a changing learning rate does."""

    conventions = {**COMMON, "momentum_form": ("velocity", "buffer")}
    kind: Literal["sgd"] = "sgd"
    learning_rate: Number = Field(gt=0, description="rate before the schedule")
    momentum: Number = Field(default=0.0, ge=0, lt=1, description="mu in the formulas of momentum_form")
    nesterov: bool = Field(default=False, description="take the gradient's step after the momentum's")
    momentum_form: Literal["velocity", "buffer"] | None = Field(
        default=None, description="velocity: v = mu*v - lr*g, w += v; buffer: b = mu*b + g, w -= lr*b"
    )

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> SGD:
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs a momentum above 0")
        return self


class Lion(OptimizerBase):
    """The sign of an interpolated momentum (Chen et al. 2023); only Keras ships it.

    w -= lr * sign(b1*m + (1-b1)*g), then m = b2*m + (1-b2)*g.
    """

    conventions = {**COMMON, "learning_rate": (1e-3, 1e-3), "weight_decay_mode": ("decoupled", "decoupled")}
    kind: Literal["lion"] = "lion"
    beta_1: Number = Field(default=0.9, gt=0, lt=1, description="share of the momentum in the update")
    beta_2: Number = Field(default=0.99, ge=0, lt=1, description="decay of the momentum")
