"""A learning rate for each weight from its squared gradients: RMSprop, Adagrad, Adadelta."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from parity.common.spec.base import Number
from parity.common.spec.optimizers.base import COMMON, OptimizerBase

EpsilonPlace = Literal["in_root", "after_root"]


class RMSprop(OptimizerBase):
    """The gradient over the root of its mean square (row 14).

    epsilon_place: lr*g/sqrt(v + eps), or lr*g/(sqrt(v) + eps). centered: v less the squared mean
    gradient. momentum_form: velocity m = mu*m + lr*s, w -= m; buffer b = mu*b + s, w -= lr*b.
    """

    conventions = {
        **COMMON,
        "learning_rate": (1e-3, 1e-2),
        "rho": (0.9, 0.99),
        "epsilon": (1e-7, 1e-8),
        "epsilon_place": ("in_root", "after_root"),
        "momentum_form": ("velocity", "buffer"),
    }
    kind: Literal["rmsprop"] = "rmsprop"
    rho: Number | None = Field(default=None, ge=0, lt=1, description="decay of the mean square")
    epsilon: Number | None = Field(default=None, gt=0, description="added to the mean square or to its root")
    epsilon_place: EpsilonPlace | None = Field(
        default=None, description="in_root: lr*g/sqrt(v + eps); after_root: lr*g/(sqrt(v) + eps)"
    )
    centered: bool = Field(
        default=False, description="subtract the squared mean gradient from the mean square"
    )
    momentum: Number = Field(default=0.0, ge=0, lt=1, description="decay of the momentum")
    momentum_form: Literal["velocity", "buffer"] | None = Field(
        default=None, description="velocity: m = mu*m + lr*s, w -= m; buffer: b = mu*b + s, w -= lr*b"
    )


class Adagrad(OptimizerBase):
    """The gradient over the root of the sum of its squares (Duchi et al. 2011; row 15).

    lr*g/sqrt(a + eps), or lr*g/(sqrt(a) + eps). `rate_decay` is PyTorch's lr_decay: the rate of step
    s, from 0, is lr / (1 + s * rate_decay).
    """

    conventions = {
        **COMMON,
        "learning_rate": (1e-3, 1e-2),
        "initial_accumulator": (0.1, 0.0),
        "epsilon": (1e-7, 1e-10),
        "epsilon_place": ("in_root", "after_root"),
    }
    kind: Literal["adagrad"] = "adagrad"
    initial_accumulator: Number | None = Field(
        default=None, ge=0, description="value that the sum of squares starts at"
    )
    epsilon: Number | None = Field(
        default=None, gt=0, description="added to the sum of squares or to its root"
    )
    epsilon_place: EpsilonPlace | None = Field(
        default=None, description="in_root: lr*g/sqrt(a + eps); after_root: lr*g/(sqrt(a) + eps)"
    )
    rate_decay: Number = Field(
        default=0.0, ge=0, description="PyTorch's lr_decay: the rate of step s is lr / (1 + s * rate_decay)"
    )


class Adadelta(OptimizerBase):
    """The gradient times the root of the mean square of past changes over its own (Zeiler 2012; row 16)."""

    conventions = {**COMMON, "learning_rate": (1e-3, 1.0), "rho": (0.95, 0.9), "epsilon": (1e-7, 1e-6)}
    kind: Literal["adadelta"] = "adadelta"
    rho: Number | None = Field(default=None, ge=0, lt=1, description="decay of both mean squares")
    epsilon: Number | None = Field(default=None, gt=0, description="added to both mean squares")
