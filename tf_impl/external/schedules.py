"""The learning rates of a user's optimizer, step by step, and one of them held."""

from __future__ import annotations

import keras
import tensorflow as tf
from keras import optimizers as optim

from parity.common.spec.external.target import Target
from parity.tf_impl.external.load import build_optimizer


def rates(target: Target, model: keras.Layer, steps: int) -> list[float] | None:
    """Return the learning rate of each of the first steps, as Keras computes it; None where no schedule is followed."""
    optimizer = _inner(build_optimizer(target, model))
    schedule = getattr(optimizer, "_learning_rate", None)
    if not isinstance(schedule, optim.schedules.LearningRateSchedule):
        return None
    return [float(schedule(tf.constant(step, optimizer.iterations.dtype))) for step in range(steps)]


def hold(optimizer: keras.Optimizer, rate: float) -> None:
    """Have an optimizer keep a learning rate, whatever its schedule says."""
    _inner(optimizer)._learning_rate = rate


def _inner(optimizer: keras.Optimizer) -> keras.Optimizer:
    return optimizer.inner_optimizer if isinstance(optimizer, optim.LossScaleOptimizer) else optimizer
