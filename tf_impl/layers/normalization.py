"""Normalisations."""

from __future__ import annotations

import keras
import tensorflow as tf

from common.spec import Node
from common.spec import layers as spec
from tf_impl.context import Context
from tf_impl.layers.registry import Contextual, register


class BatchNorm(Contextual):
    """Batch norm whose statistics come from a (sum, count) reduced over the replicas."""

    def __init__(self, layer: spec.BatchNorm) -> None:
        super().__init__()
        self.spec = layer

    def build(self, input_shape: tuple) -> None:
        shape = (input_shape[-1],)
        self.gamma = self.add_weight(shape=shape, name="gamma")
        self.beta = self.add_weight(shape=shape, name="beta")
        self.moving_mean = self._buffer(shape)
        self.moving_variance = self._buffer(shape)
        self.built = True

    def _buffer(self, shape: tuple) -> tf.Variable:
        # Replica 0's buffers are the canonical ones, as rank 0's are in PyTorch. Keras's add_weight
        # cannot say so.
        return tf.Variable(
            tf.zeros(shape, self.dtype),
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def call(self, x: tf.Tensor, context: Context) -> tf.Tensor:
        if not context.training:
            return self._normalise(x - self.moving_mean, self.moving_variance)
        axes = list(range(x.shape.rank - 1))
        count = tf.cast(tf.size(x[..., 0]), x.dtype)
        total, count = self._reduce([tf.reduce_sum(x, axes), count])
        # A replica without samples contributes zeros; without a reduction it must not divide by them.
        divisor = tf.maximum(count, 1)
        centred = x - total / divisor
        squares = self._reduce(tf.reduce_sum(tf.square(centred), axes))
        variance = squares / divisor
        unbiased = self.spec.running_variance == "unbiased"
        stored = squares / tf.maximum(count - 1, 1) if unbiased else variance
        keep = tf.where(count > 0, tf.constant(self.spec.decay, x.dtype), tf.constant(1, x.dtype))
        for moving, batch in ((self.moving_mean, total / divisor), (self.moving_variance, stored)):
            moving.assign(keep * moving + (1 - keep) * batch)
        return self._normalise(centred, variance)

    def _reduce(self, value: tf.Tensor | list[tf.Tensor]) -> tf.Tensor | list[tf.Tensor]:
        context = tf.distribute.get_replica_context()
        if self.spec.statistics == "per_replica" or context.num_replicas_in_sync == 1:
            return value
        return context.all_reduce(tf.distribute.ReduceOp.SUM, value)

    def _normalise(self, centred: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
        epsilon = tf.constant(self.spec.epsilon, centred.dtype)
        return centred * (self.gamma * tf.math.rsqrt(variance + epsilon)) + self.beta


@register(spec.BatchNorm)
def batch_norm(node: Node) -> keras.layers.Layer:
    return BatchNorm(node.spec)


@register(spec.LayerNorm)
def layer_norm(node: Node) -> keras.layers.Layer:
    return keras.layers.LayerNormalization(epsilon=node.spec.epsilon)
