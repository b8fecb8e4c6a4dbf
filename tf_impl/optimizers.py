"""Optimizers in either framework's convention; formulas as in `common/reference.py`."""

from __future__ import annotations

import tensorflow as tf

from common import reference
from common.spec import SGD
from common.spec.optimizers import OptimizerBase
from tf_impl.model import Model
from tf_impl.strategy import Strategy


class Optimizer:
    """Slots and the update of one tensor."""

    def __init__(self, spec: OptimizerBase, model: Model) -> None:
        self.spec = spec
        self.slots: dict[str, dict[str, tf.Variable]] = {
            slot: {
                name: tf.Variable(tf.zeros_like(p), trainable=False) for name, p in model.parameters.items()
            }
            for slot in reference.slot_names(spec)
        }

    def update(
        self, weight: tf.Variable, gradient: tf.Tensor, scalars: tf.Tensor, slots: list[tf.Variable]
    ) -> tf.Tensor:
        """Update one replica's weight and slots in place; return the change that was applied."""
        spec = self.spec
        rate, step_size, second_correction = tf.unstack(scalars)
        constant = lambda value: tf.constant(value, weight.dtype)  # noqa: E731
        change = tf.zeros_like(weight)
        if spec.weight_decay and spec.weight_decay_mode == "coupled":
            gradient = gradient + constant(spec.weight_decay) * weight
        elif spec.weight_decay:
            change = -rate * constant(spec.weight_decay) * weight
        if isinstance(spec, SGD):
            change += self._sgd(gradient, rate, slots)
        else:
            first, second = slots
            # 1 - beta is rounded once, from float64, as PyTorch does.
            first.assign(constant(spec.beta_1) * first + constant(1 - spec.beta_1) * gradient)
            second.assign(constant(spec.beta_2) * second + constant(1 - spec.beta_2) * tf.square(gradient))
            root = tf.sqrt(second) / second_correction + constant(spec.epsilon)
            change -= step_size * first / root
        weight.assign_add(change)
        return change

    def _sgd(self, gradient: tf.Tensor, rate: tf.Tensor, slots: list[tf.Variable]) -> tf.Tensor:
        spec = self.spec
        if not slots:
            return -rate * gradient
        (slot,) = slots
        momentum = tf.constant(spec.momentum, gradient.dtype)
        if spec.momentum_form == "velocity":
            velocity = slot.assign(momentum * slot - rate * gradient)
            return momentum * velocity - rate * gradient if spec.nesterov else velocity
        buffer = slot.assign(momentum * slot + gradient)
        return -rate * (gradient + momentum * buffer if spec.nesterov else buffer)

    def clip(self, gradients: list[tf.Tensor], norm: tf.Tensor) -> list[tf.Tensor]:
        """Scale reduced gradients so that their global norm is at most the spec's."""
        limit = self.spec.clip_global_norm
        if limit is None:
            return gradients
        limit = tf.constant(limit, norm.dtype)
        factor = tf.minimum(
            tf.ones_like(norm), limit / (norm + tf.constant(self.spec.clip_epsilon, norm.dtype))
        )
        return [gradient * factor for gradient in gradients]


def build_optimizer(spec: OptimizerBase, model: Model, strategy: Strategy) -> Optimizer:
    """The optimizer of a resolved spec, its slots zero."""
    with strategy.native.scope():
        return Optimizer(spec, model)
