"""One optimizer step on one tensor, and the scalars that both trainers are handed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from common.reference.schedules import learning_rate
from common.spec.optimizers import SGD, AdamBase, OptimizerBase
from common.spec.train import TrainSpec

Array = NDArray[np.floating]
Slots = dict[str, Array]

# The scalars that every optimizer step receives, in this order.
SCALARS = ("learning_rate", "step_size", "second_correction")


def step_scalars(spec: TrainSpec, step: int) -> tuple[float, float, float]:
    """(learning rate, Adam's step size, Adam's second-moment correction) of a step, from 0.

    Kingma and Ba, "Adam" (ICLR 2015), section 2: with epsilon outside the bias correction the
    step size is lr * sqrt(1 - b2^t) / (1 - b1^t) and the second moment stays as it is; inside, the
    step size is lr / (1 - b1^t) and the root of the second moment is divided by sqrt(1 - b2^t).
    """
    rate = learning_rate(spec, step)
    optimizer = spec.optimizer
    if not isinstance(optimizer, AdamBase):
        return rate, rate, 1.0
    first = 1 - optimizer.beta_1 ** (step + 1)
    root = math.sqrt(1 - optimizer.beta_2 ** (step + 1))
    if optimizer.epsilon_place == "outside":
        return rate, rate * root / first, 1.0
    return rate, rate / first, root


def slot_names(optimizer: OptimizerBase) -> tuple[str, ...]:
    """Names of the optimizer's slots; each holds one tensor per parameter, starting at zero."""
    if isinstance(optimizer, SGD):
        return (f"momentum_{optimizer.momentum_form}",) if optimizer.momentum else ()
    return ("first_moment", "second_moment")


def clip_factor(optimizer: OptimizerBase, norm: float) -> float:
    """What a gradient of global norm `norm` is multiplied by."""
    if optimizer.clip_global_norm is None:
        return 1.0
    total = norm + (optimizer.clip_epsilon or 0.0)
    return 1.0 if total <= optimizer.clip_global_norm else optimizer.clip_global_norm / total


def update(
    optimizer: OptimizerBase,
    scalars: tuple[float, float, float],
    weight: Array,
    gradient: Array,
    slots: Slots,
) -> tuple[Array, Slots]:
    """One optimizer step on one tensor: (new weight, new slots). The gradient is already clipped."""
    rate, step_size, second_correction = scalars
    decay = optimizer.weight_decay or 0.0
    decayed = weight
    if decay and optimizer.weight_decay_mode == "coupled":
        gradient = gradient + decay * weight
    elif decay:
        decayed = weight - rate * decay * weight
    if isinstance(optimizer, SGD):
        return _sgd(optimizer, rate, decayed, gradient, slots)
    assert isinstance(optimizer, AdamBase)
    first = optimizer.beta_1 * slots["first_moment"] + (1 - optimizer.beta_1) * gradient
    second = optimizer.beta_2 * slots["second_moment"] + (1 - optimizer.beta_2) * gradient**2
    epsilon = optimizer.epsilon or 0.0
    change = step_size * first / (np.sqrt(second) / second_correction + epsilon)
    return decayed - change, {"first_moment": first, "second_moment": second}


def _sgd(optimizer: SGD, rate: float, weight: Array, gradient: Array, slots: Slots) -> tuple[Array, Slots]:
    if not optimizer.momentum:
        return weight - rate * gradient, {}
    momentum = optimizer.momentum
    if optimizer.momentum_form == "velocity":
        velocity = momentum * slots["momentum_velocity"] - rate * gradient
        change = momentum * velocity - rate * gradient if optimizer.nesterov else velocity
        return weight + change, {"momentum_velocity": velocity}
    buffer = momentum * slots["momentum_buffer"] + gradient
    direction = gradient + momentum * buffer if optimizer.nesterov else buffer
    return weight - rate * direction, {"momentum_buffer": buffer}
