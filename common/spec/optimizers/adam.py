"""Adam and its relatives: two moments with bias correction."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from parity.common.spec.base import Number
from parity.common.spec.optimizers.base import COMMON, OptimizerBase


class Moments(OptimizerBase):
    """The decays of the two moments, and epsilon."""

    beta_1: Number = Field(default=0.9, ge=0, lt=1, description="decay of the first moment")
    beta_2: Number = Field(default=0.999, ge=0, lt=1, description="decay of the second moment")
    epsilon: Number | None = Field(default=None, gt=0, description="added to the root of the second moment")


_COMMON = {**COMMON, "epsilon": (1e-7, 1e-8)}


class AdamBase(Moments):
    """Adam's own fields. `epsilon_place` says whether bias correction touches epsilon (row 11)."""

    learning_rate: Number = Field(gt=0, description="rate before the schedule")
    epsilon_place: Literal["outside", "inside"] | None = Field(
        default=None,
        description="outside: sqrt(v) + eps, corrected step size; inside: sqrt(v / (1-b2^t)) + eps",
    )
    amsgrad: bool = Field(
        default=False, description="the largest second moment so far in place of the present one"
    )


class Adam(AdamBase):
    """Adam; its weight decay is decoupled in Keras and coupled in PyTorch (row 12)."""

    conventions = {**_COMMON, "epsilon_place": ("outside", "inside")}
    kind: Literal["adam"] = "adam"


class AdamW(AdamBase):
    """Adam with decoupled weight decay, .004 in Keras and .01 in PyTorch unless given (row 13)."""

    conventions = {
        **_COMMON,
        "epsilon_place": ("outside", "inside"),
        "weight_decay": (0.004, 0.01),
        "weight_decay_mode": ("decoupled", "decoupled"),
    }
    kind: Literal["adamw"] = "adamw"
    weight_decay_mode: Literal["decoupled"] | None = Field(
        default=None, description="decoupled: w -= lr*wd*w before the update"
    )


class Adamax(Moments):
    """Adam by the infinity norm (Kingma and Ba 2015, section 7.1).

    u = max(b2 * u, |g|) and w -= lr / (1 - b1^t) * m / u; epsilon is added to u in the denominator
    (Keras), or to |g| before the maximum is taken (PyTorch).
    """

    conventions = {**_COMMON, "learning_rate": (1e-3, 2e-3), "epsilon_place": ("denominator", "norm")}
    kind: Literal["adamax"] = "adamax"
    epsilon_place: Literal["denominator", "norm"] | None = Field(
        default=None, description="added to the denominator, or to |g| before the maximum is taken"
    )


class Nadam(Moments):
    """Adam with Nesterov momentum (Dozat 2016).

    mu_t = b1 * (1 - .96^(t*d) / 2) with `momentum_decay` d: 1 in Keras and .004 in PyTorch, which
    makes the warm-up of the momentum 250 times as long.
    """

    conventions = {**_COMMON, "learning_rate": (1e-3, 2e-3), "momentum_decay": (1.0, 4e-3)}
    kind: Literal["nadam"] = "nadam"
    momentum_decay: Number | None = Field(default=None, ge=0, description="d in the formula above")
