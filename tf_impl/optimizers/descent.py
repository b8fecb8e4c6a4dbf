"""Gradient descent and Lion; formulas as in `common/reference/optimizers/descent.py`."""

from __future__ import annotations

import tensorflow as tf

from parity.common.spec.optimizers import SGD, Lion
from parity.tf_impl.optimizers.base import Update, register


@register(SGD)
def sgd(given: Update) -> tf.Tensor:
    """v = mu*v - lr*g, w += v; or b = mu*b + g, w -= lr*b."""
    spec, rate, gradient = given.spec, given.scalars["learning_rate"], given.gradient
    if not spec.momentum:
        return -rate * gradient
    slot = given.slots[f"momentum_{spec.momentum_form}"]
    if spec.momentum_form == "velocity":
        velocity = slot.assign(spec.momentum * slot - rate * gradient)
        return spec.momentum * velocity - rate * gradient if spec.nesterov else velocity
    buffer = slot.assign(spec.momentum * slot + gradient)
    return -rate * (gradient + spec.momentum * buffer if spec.nesterov else buffer)


@register(Lion)
def lion(given: Update) -> tf.Tensor:
    """The sign of the momentum moved towards the gradient."""
    spec, moment, gradient = given.spec, given.slots["first_moment"], given.gradient
    direction = tf.sign(spec.beta_1 * moment + (1 - spec.beta_1) * gradient)
    moment.assign(spec.beta_2 * moment + (1 - spec.beta_2) * gradient)
    return -given.scalars["learning_rate"] * direction
