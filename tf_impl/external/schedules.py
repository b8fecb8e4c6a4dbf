"""The learning rates of a user's optimizer, step by step, and one of them held."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

from parity.common.spec.external.target import Target
from parity.tf_impl.external.load import with_scheduler


def rates(target: Target, model: keras.Layer, steps: int) -> list[list[float]] | None:
    """Return the learning rates of each of the first steps, one of all tensors, as Keras computes it; None where no schedule is followed."""
    optimizer, schedule = with_scheduler(target, model)
    if schedule is None:
        return None
    return [[float(schedule(tf.constant(step, optimizer.iterations.dtype)))] for step in range(steps)]


def hold(optimizer: keras.Optimizer, rates: Sequence[float]) -> None:
    """Have an optimizer keep a learning rate, the one of all tensors, whatever its schedule says."""
    scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    (optimizer.inner_optimizer if scaled else optimizer)._learning_rate = rates[0]
