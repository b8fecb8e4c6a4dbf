"""RMSprop, Adagrad and Adadelta; formulas as in `common/reference/optimizers/adaptive.py`."""

from __future__ import annotations

import tensorflow as tf

from parity.common.spec.optimizers import Adadelta, Adagrad, RMSprop
from parity.tf_impl.optimizers.base import Update, register


def _root(spec: RMSprop | Adagrad, square: tf.Tensor) -> tf.Tensor:
    if spec.epsilon_place == "in_root":
        return tf.sqrt(square + spec.epsilon)
    return tf.sqrt(square) + spec.epsilon


@register(RMSprop)
def rmsprop(given: Update) -> tf.Tensor:
    """The gradient over the root of its mean square, with momentum."""
    spec, rate, gradient, slots = given.spec, given.scalars["learning_rate"], given.gradient, given.slots
    fresh = 1 - spec.rho
    second = slots["second_moment"]
    square = second.assign(spec.rho * second + fresh * tf.square(gradient))
    if spec.centered:
        first = slots["first_moment"]
        square = square - tf.square(first.assign(spec.rho * first + fresh * gradient))
    scaled = gradient / _root(spec, square)
    if not spec.momentum:
        return -rate * scaled
    slot = slots[f"momentum_{spec.momentum_form}"]
    if spec.momentum_form == "velocity":
        return -slot.assign(spec.momentum * slot + rate * scaled)
    return -rate * slot.assign(spec.momentum * slot + scaled)


@register(Adagrad)
def adagrad(given: Update) -> tf.Tensor:
    """The gradient over the root of the sum of its squares."""
    slot = given.slots["accumulator"]
    accumulator = slot.assign(slot + tf.square(given.gradient))
    return -given.scalars["step_size"] * given.gradient / _root(given.spec, accumulator)


@register(Adadelta)
def adadelta(given: Update) -> tf.Tensor:
    """The gradient in units of past changes."""
    spec, gradient = given.spec, given.gradient
    second, past = given.slots["second_moment"], given.slots["squared_change"]
    square = second.assign(spec.rho * second + (1 - spec.rho) * tf.square(gradient))
    change = tf.sqrt(past + spec.epsilon) / tf.sqrt(square + spec.epsilon) * gradient
    past.assign(spec.rho * past + (1 - spec.rho) * tf.square(change))
    return -given.scalars["learning_rate"] * change
