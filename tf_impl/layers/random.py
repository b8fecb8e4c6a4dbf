"""Dropout and its relatives."""

from __future__ import annotations

import math

import tensorflow as tf

from parity.common.base import rng
from parity.common.execution.pass_context import Context
from parity.common.spec import layers as spec
from parity.common.spec.layers import Shape
from parity.common.spec.layers.random import threshold
from parity.tf_impl.layers.registry import Contextual, NodeLayer, register
from parity.tf_impl.random import sample_words


def keep_mask(x: tf.Tensor, context: Context, path: str, shape: Shape, rate: float) -> tf.Tensor:
    """(batch, *shape): 1 / (1 - rate) where the layer at `path` keeps an element, else 0."""
    key = rng.derive_key(context.seed, "dropout", path)
    words = sample_words(key, context.step, context.sample_ids, math.prod(shape))
    kept = tf.cast(words >= threshold(rate), x.dtype)
    return tf.reshape(kept, [-1, *shape]) * tf.constant(1 / (1 - rate), x.dtype)


@register(spec.Dropout)
class Dropout(Contextual, NodeLayer):
    """x times its mask, in training."""

    def call(self, x: tf.Tensor, context: Context) -> tf.Tensor:
        rate = self.node.spec.rate
        if not context.training or rate == 0:
            return x
        shape = self.node.spec.mask_shape(self.node.input_shape)
        return x * keep_mask(x, context, self.node.path, shape, rate)
