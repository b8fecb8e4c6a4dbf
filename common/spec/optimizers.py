"""Optimizer specs. Formulas: `common/reference/optimizers.py`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from common.spec.base import Convention, Number, Spec


class OptimizerBase(Spec):
    """Fields every optimizer has. Formulas: `common/reference.py`."""

    convention: Convention | None = Field(None, description="default: the TrainSpec's")
    learning_rate: Number = Field(gt=0)
    clip_global_norm: Number | None = Field(None, gt=0, description="applied after the reduction")
    clip_epsilon: Number | None = Field(None, ge=0, description="g * min(1, clip / (norm + clip_epsilon))")
    weight_decay: Number | None = Field(None, ge=0)
    weight_decay_mode: Literal["decoupled", "coupled"] | None = Field(
        None, description="decoupled: w -= lr*wd*w before the update; coupled: g += wd*w"
    )


class SGD(OptimizerBase):
    """Gradient descent with momentum. `momentum_form` decides what a changing learning rate does."""

    conventions = {
        "keras": {
            "momentum_form": "velocity",
            "weight_decay": 0.0,
            "weight_decay_mode": "decoupled",
            "clip_epsilon": 0.0,
        },
        "torch": {
            "momentum_form": "buffer",
            "weight_decay": 0.0,
            "weight_decay_mode": "coupled",
            "clip_epsilon": 1e-6,
        },
    }
    kind: Literal["sgd"] = "sgd"
    momentum: Number = Field(0.0, ge=0, lt=1)
    nesterov: bool = False
    momentum_form: Literal["velocity", "buffer"] | None = Field(
        None, description="velocity: v = mu*v - lr*g, w += v; buffer: b = mu*b + g, w -= lr*b"
    )

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> SGD:
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs a momentum above 0")
        return self


_ADAM = {
    "keras": {"epsilon": 1e-7, "epsilon_place": "outside", "clip_epsilon": 0.0},
    "torch": {"epsilon": 1e-8, "epsilon_place": "inside", "clip_epsilon": 1e-6},
}


class AdamBase(OptimizerBase):
    """Adam's own fields. `epsilon_place` says whether bias correction touches epsilon (row 11)."""

    beta_1: Number = Field(0.9, ge=0, lt=1)
    beta_2: Number = Field(0.999, ge=0, lt=1)
    epsilon: Number | None = Field(None, gt=0)
    epsilon_place: Literal["outside", "inside"] | None = Field(
        None, description="outside: sqrt(v) + eps, corrected step size; inside: sqrt(v / (1-b2^t)) + eps"
    )


class Adam(AdamBase):
    """Adam; its weight decay is decoupled in Keras and coupled in PyTorch (row 12)."""

    conventions = {
        "keras": {**_ADAM["keras"], "weight_decay": 0.0, "weight_decay_mode": "decoupled"},
        "torch": {**_ADAM["torch"], "weight_decay": 0.0, "weight_decay_mode": "coupled"},
    }
    kind: Literal["adam"] = "adam"


class AdamW(AdamBase):
    """Adam with decoupled weight decay, .004 in Keras and .01 in PyTorch unless given (row 13)."""

    conventions = {
        "keras": {**_ADAM["keras"], "weight_decay": 0.004, "weight_decay_mode": "decoupled"},
        "torch": {**_ADAM["torch"], "weight_decay": 0.01, "weight_decay_mode": "decoupled"},
    }
    kind: Literal["adamw"] = "adamw"
    weight_decay_mode: Literal["decoupled"] | None = None


OptimizerSpec = Annotated[SGD | Adam | AdamW, Field(discriminator="kind")]
