"""Adam and its relatives; formulas as in `common/reference/optimizers/adam.py`."""

from __future__ import annotations

import tensorflow as tf

from parity.common.spec.optimizers import Adam, Adamax, AdamW, Nadam
from parity.tf_impl.optimizers.base import Update, register


def moments(given: Update) -> tuple[tf.Tensor, tf.Tensor]:
    """The two moments after this step's gradient; sets their slots."""
    spec, gradient = given.spec, given.gradient
    first, second = given.slots["first_moment"], given.slots["second_moment"]
    # 1 - beta is rounded once, from float64, as PyTorch does.
    return (
        first.assign(spec.beta_1 * first + (1 - spec.beta_1) * gradient),
        second.assign(spec.beta_2 * second + (1 - spec.beta_2) * tf.square(gradient)),
    )


@register(Adam, AdamW)
def adam(given: Update) -> tf.Tensor:
    """The corrected first moment over the root of the second."""
    spec, scalars = given.spec, given.scalars
    first, second = moments(given)
    if spec.amsgrad:
        largest = given.slots["largest_second_moment"]
        second = largest.assign(tf.maximum(largest, second))
    root = tf.sqrt(second) / scalars["second_correction"] + spec.epsilon
    return -scalars["step_size"] * first / root


@register(Adamax)
def adamax(given: Update) -> tf.Tensor:
    """The corrected first moment over the decayed maximum of |g|."""
    spec, gradient = given.spec, given.gradient
    first, norm = given.slots["first_moment"], given.slots["infinity_norm"]
    new_first = first.assign(spec.beta_1 * first + (1 - spec.beta_1) * gradient)
    size = tf.abs(gradient)
    if spec.epsilon_place == "norm":
        size = size + spec.epsilon
    divisor = norm.assign(tf.maximum(spec.beta_2 * norm, size))
    if spec.epsilon_place == "denominator":
        divisor = divisor + spec.epsilon
    return -given.scalars["step_size"] * new_first / divisor


@register(Nadam)
def nadam(given: Update) -> tf.Tensor:
    """Adam with the next step's momentum and this step's gradient in place of the first moment."""
    scalars = given.scalars
    first, second = moments(given)
    direction = scalars["gradient_step_size"] * given.gradient + scalars["moment_step_size"] * first
    return -direction / (tf.sqrt(second) / scalars["second_correction"] + given.spec.epsilon)
