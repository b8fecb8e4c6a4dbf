"""Gradient descent and Lion."""

from __future__ import annotations

import numpy as np

from parity.common.reference.optimizers.base import Array, InitialSlot, Slots, Update, like_weight, register
from parity.common.spec.optimizers import SGD, Lion


def _momentum(spec: SGD, shape: tuple[int, ...]) -> dict[str, InitialSlot]:
    return {f"momentum_{spec.momentum_form}": InitialSlot(shape, 0.0)} if spec.momentum else {}


@register(SGD, slots=_momentum)
def sgd(given: Update) -> tuple[Array, Slots]:
    """Return the change and the slots, of the weight's shape: v = mu*v - lr*g, w += v; or b = mu*b + g, w -= lr*b.

    Nesterov's form as in Sutskever et al. (ICML 2013).
    """
    spec, rate, gradient = given.spec, given.scalars["learning_rate"], given.gradient
    assert isinstance(spec, SGD)
    if not spec.momentum:
        return -rate * gradient, {}
    if spec.momentum_form == "velocity":
        velocity = spec.momentum * given.slots["momentum_velocity"] - rate * gradient
        change = spec.momentum * velocity - rate * gradient if spec.nesterov else velocity
        return change, {"momentum_velocity": velocity}
    buffer = spec.momentum * given.slots["momentum_buffer"] + gradient
    direction = gradient + spec.momentum * buffer if spec.nesterov else buffer
    return -rate * direction, {"momentum_buffer": buffer}


@register(Lion, slots=like_weight("first_moment"))
def lion(given: Update) -> tuple[Array, Slots]:
    """Return the change and the slots, of the weight's shape: the sign of the momentum moved towards the gradient.

    Chen et al., arXiv:2302.06675 (2023), algorithm 2.
    """
    spec, moment, gradient = given.spec, given.slots["first_moment"], given.gradient
    assert isinstance(spec, Lion)
    direction = np.sign(spec.beta_1 * moment + (1 - spec.beta_1) * gradient)
    moment = spec.beta_2 * moment + (1 - spec.beta_2) * gradient
    return -given.scalars["learning_rate"] * direction, {"first_moment": moment}
