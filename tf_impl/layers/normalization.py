"""Normalisations."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from parity.common.execution.pass_context import Context
from parity.common.spec import Node
from parity.common.spec import layers as spec
from parity.tf_impl.layers.registry import Contextual, NodeLayer, register
from parity.tf_impl.strategy.values import own_variable


class _Normalisation(NodeLayer):
    """A norm, which also under a mixed policy computes in the type of its variables, as Keras's own do."""

    gamma = beta = None

    def add_weight(self, *given: Any, **named: Any) -> keras.Variable:
        return super().add_weight(*given, **named, autocast=False)

    def call(self, x: tf.Tensor, **context: Context) -> tf.Tensor:
        return tf.cast(self.normalised(tf.cast(x, self.variable_dtype), **context), x.dtype)


@register(spec.BatchNorm)
class BatchNorm(Contextual, _Normalisation):
    """Batch norm whose statistics come from a (sum, count) reduced over the replicas.

    guarded: whether the local batch may be empty.
    """

    guarded = False

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.spec = node.spec

    def build(self, input_shape: tuple) -> None:
        for tensor in self.node.parameters:
            if tensor.name in ("moving_mean", "moving_variance"):
                # Replica 0's buffers are the canonical ones, as rank 0's are in PyTorch. Keras's add_weight
                # cannot say so.
                variable = own_variable(tensor.shape, self.dtype)
            else:
                variable = self.add_weight(shape=tensor.shape, name=tensor.name, trainable=tensor.trainable)
            setattr(self, tensor.name, variable)
        self.built = True

    def normalised(self, x: tf.Tensor, context: Context) -> tf.Tensor:
        if not (context.training and self.spec.uses_batch):
            return self._normalise(x - self.moving_mean, self.moving_variance)
        if self._fuses(x):
            return self._fused(x)
        axes = list(range(x.shape.rank - 1))
        count = _count(x)
        total, count = self._reduce([tf.reduce_sum(x, axes), count])
        # A replica without samples contributes zeros; without a reduction it must not divide by them.
        divisor = tf.maximum(count, 1)
        centred = x - total / divisor
        squares = self._reduce(tf.reduce_sum(tf.square(centred), axes))
        self._move(count, total / divisor, squares)
        return self._normalise(centred, squares / divisor)

    def _fuses(self, x: tf.Tensor) -> bool:
        """Whether TensorFlow has one kernel for all of it: no float64, no empty batch, no sum over replicas."""
        return x.dtype == tf.float32 and x.shape.rank == 4 and self._alone and not self.guarded

    def _fused(self, x: tf.Tensor) -> tf.Tensor:
        """The same by that kernel, in less than half the time."""
        ones, zeros = tf.ones(x.shape[-1:], x.dtype), tf.zeros(x.shape[-1:], x.dtype)
        y, mean, unbiased, *_ = tf.raw_ops.FusedBatchNormV3(
            x=x,
            scale=ones if self.gamma is None else self.gamma,
            offset=zeros if self.beta is None else self.beta,
            mean=zeros,
            variance=zeros,
            epsilon=self.spec.epsilon,
            is_training=True,
        )
        count = _count(x)
        self._move(count, mean, unbiased * tf.maximum(count - 1, 1))
        return y

    def _move(self, count: tf.Tensor, mean: tf.Tensor, squares: tf.Tensor) -> None:
        """Move the running statistics towards those of `count` values a channel, if there are any."""
        less = tf.cast(self.spec.running_variance == "unbiased", count.dtype)
        variance = squares / tf.maximum(count - less, 1)
        keep = tf.where(count > 0, tf.constant(self.spec.decay, count.dtype), tf.ones_like(count))
        for moving, batch in ((self.moving_mean, mean), (self.moving_variance, variance)):
            moving.assign(keep * moving + (1 - keep) * batch)

    @property
    def _alone(self) -> bool:
        """Whether each replica takes the statistics of its own samples."""
        return self.spec.statistics == "per_replica"

    def _reduce(self, value: tf.Tensor | list[tf.Tensor]) -> tf.Tensor | list[tf.Tensor]:
        context = tf.distribute.get_replica_context()
        if self._alone or context.num_replicas_in_sync == 1:
            return value
        return context.all_reduce(tf.distribute.ReduceOp.SUM, value)

    def _normalise(self, centred: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
        epsilon = tf.constant(self.spec.epsilon, centred.dtype)
        scale = tf.math.rsqrt(variance + epsilon)
        y = centred * (scale if self.gamma is None else self.gamma * scale)
        return y if self.beta is None else y + self.beta


def _count(x: tf.Tensor) -> tf.Tensor:
    """Values a channel, a scalar of x's type."""
    return tf.cast(tf.shape(x)[0] * math.prod(x.shape[1:-1]), x.dtype)


class _OfSamples(_Normalisation):
    """A norm within each sample, with gamma and beta where the spec has them."""

    def scaled(self, y: tf.Tensor) -> tf.Tensor:
        """gamma y + beta."""
        if self.gamma is not None:
            y = y * self.gamma
        return y if self.beta is None else y + self.beta

    def last(self, x: tf.Tensor) -> list[int]:
        """The last axes that the spec names."""
        return list(range(x.shape.rank - self.node.spec.axes, x.shape.rank))


def _standardised(x: tf.Tensor, axes: list[int], epsilon: float) -> tf.Tensor:
    """Zero mean and unit variance over the axes, from the centred values: E[x^2] - E[x]^2 would cancel."""
    centred = x - tf.reduce_mean(x, axes, keepdims=True)
    variance = tf.reduce_mean(tf.square(centred), axes, keepdims=True)
    return centred * tf.math.rsqrt(variance + tf.constant(epsilon, x.dtype))


@register(spec.LayerNorm)
class LayerNorm(_OfSamples):
    """Over the last axes."""

    def normalised(self, x: tf.Tensor) -> tf.Tensor:
        return self.scaled(_standardised(x, self.last(x), self.node.spec.epsilon))


@register(spec.RMSNorm)
class RMSNorm(_OfSamples):
    """Over the last axes, without a mean."""

    def normalised(self, x: tf.Tensor) -> tf.Tensor:
        epsilon = self.node.spec.epsilon
        if epsilon == "machine":
            epsilon = np.finfo(x.dtype.as_numpy_dtype).eps
        squares = tf.reduce_mean(tf.square(x), self.last(x), keepdims=True)
        return self.scaled(x * tf.math.rsqrt(squares + tf.constant(epsilon, x.dtype)))


@register(spec.GroupNorm, spec.InstanceNorm)
class GroupNorm(_OfSamples):
    """Over all axes but the groups of channels."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        alone = isinstance(node.spec, spec.InstanceNorm)
        self.groups = node.input_shape[-1] if alone else node.spec.groups

    def normalised(self, x: tf.Tensor) -> tf.Tensor:
        *sides, channels = self.node.input_shape
        grouped = tf.reshape(x, [-1, *sides, self.groups, channels // self.groups])
        axes = [*range(1, len(sides) + 1), len(sides) + 2]
        y = _standardised(grouped, axes, self.node.spec.epsilon)
        return self.scaled(tf.reshape(y, [-1, *sides, channels]))
