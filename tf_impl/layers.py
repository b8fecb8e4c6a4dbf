"""LayerSpec -> keras layer: one registered function per spec class.

Variables carry the canonical tensor names as attributes (`kernel`, `gamma`, ...), in canonical
layout, so no translation table is needed on this side.
"""

from __future__ import annotations

from collections.abc import Callable

import keras
import tensorflow as tf

from common.spec import Node
from common.spec import layers as spec

_BUILDERS: dict[type, Callable[[Node], keras.layers.Layer]] = {}


def register(spec_class: type) -> Callable:
    """Decorator: the function that turns a node of `spec_class` into a layer."""

    def remember(builder: Callable[[Node], keras.layers.Layer]) -> Callable:
        _BUILDERS[spec_class] = builder
        return builder

    return remember


def build_layer(node: Node) -> keras.layers.Layer:
    """The layer of a node, its children included, its variables created."""
    layer = _BUILDERS[type(node.spec)](node)
    if not layer.built:
        layer.build((None, *node.input_shape))
    return layer


class Function(keras.layers.Layer):
    """A layer without variables."""

    def __init__(self, function: Callable[[tf.Tensor], tf.Tensor]) -> None:
        super().__init__()
        self.function = function

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.function(x)


@register(spec.Dense)
def dense(node: Node) -> keras.layers.Layer:
    return keras.layers.Dense(node.spec.units, use_bias=node.spec.use_bias)


class EmptySafe(keras.layers.Layer):
    """A mixin for layers whose oneDNN kernels cannot take an empty batch.

    In float32 they give the input's shape for the output's (convolution) or end the process
    (pooling); seen with TensorFlow 2.21. An empty local batch is right where a tail is small.
    The guard costs a tenth of a small network's speed, so it is there only where it is needed.
    """

    guarded = False

    def call(self, x: tf.Tensor) -> tf.Tensor:
        if not self.guarded:
            return super().call(x)
        shape = self.compute_output_shape(x.shape)[1:]
        forward = super().call
        return tf.cond(tf.shape(x)[0] > 0, lambda: forward(x), lambda: tf.zeros([0, *shape], x.dtype))


class Conv2D(EmptySafe, keras.layers.Conv2D):
    """keras.layers.Conv2D that takes empty batches."""


class MaxPool2D(EmptySafe, keras.layers.MaxPooling2D):
    """keras.layers.MaxPooling2D that takes empty batches."""


@register(spec.Conv2D)
def conv2d(node: Node) -> keras.layers.Layer:
    layer = node.spec
    return Conv2D(
        layer.filters, layer.kernel_size, layer.strides, padding=layer.padding, use_bias=layer.use_bias
    )


class BatchNorm(keras.layers.Layer):
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

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        if not training:
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


def gelu(x: tf.Tensor) -> tf.Tensor:
    """x * Phi(x) with the error function. keras.activations.gelu passes 1/sqrt(2) through float32."""
    return 0.5 * x * (1 + tf.math.erf(x * tf.constant(0.5**0.5, x.dtype)))


@register(spec.Activation)
def activation(node: Node) -> keras.layers.Layer:
    return Function({"relu": tf.nn.relu, "gelu": gelu, "tanh": tf.math.tanh}[node.spec.function])


@register(spec.MaxPool2D)
def max_pool2d(node: Node) -> keras.layers.Layer:
    return MaxPool2D(node.spec.size)


@register(spec.GlobalAveragePool)
def global_average_pool(node: Node) -> keras.layers.Layer:
    return Function(lambda x: tf.reduce_mean(x, list(range(1, x.shape.rank - 1))))


@register(spec.Flatten)
def flatten(node: Node) -> keras.layers.Layer:
    channels_first = node.spec.order == "chw"

    def apply(x: tf.Tensor) -> tf.Tensor:
        rank = x.shape.rank
        if channels_first and rank > 2:
            x = tf.transpose(x, [0, rank - 1, *range(1, rank - 1)])
        return tf.reshape(x, [-1, *node.output_shape])

    return Function(apply)


@register(spec.Patchify)
def patchify(node: Node) -> keras.layers.Layer:
    size = node.spec.size
    height, width, channels = node.input_shape

    def apply(x: tf.Tensor) -> tf.Tensor:
        x = tf.reshape(x, [-1, height // size, size, width // size, size, channels])
        return tf.reshape(tf.transpose(x, [0, 1, 3, 2, 4, 5]), [-1, *node.output_shape])

    return Function(apply)


class PositionEmbedding(keras.layers.Layer):
    """x + embedding."""

    def build(self, input_shape: tuple) -> None:
        self.embedding = self.add_weight(shape=input_shape[1:], name="embedding")
        self.built = True

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return x + self.embedding


@register(spec.PositionEmbedding)
def position_embedding(node: Node) -> keras.layers.Layer:
    return PositionEmbedding()


class SelfAttention(keras.layers.Layer):
    """Multi-head attention with the scale kept in the run's own precision."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.heads = node.spec.heads
        self.width = node.input_shape[-1]
        self.tensors = node.parameters

    def build(self, input_shape: tuple) -> None:
        for tensor in self.tensors:
            setattr(self, tensor.name, self.add_weight(shape=tensor.shape, name=tensor.name))
        self.built = True

    def call(self, x: tf.Tensor) -> tf.Tensor:
        tokens, size = x.shape[1], self.width // self.heads
        query, key, value = (self._split(self._project(x, part), tokens, size) for part in _QKV)
        scores = tf.matmul(query * tf.constant(size**-0.5, x.dtype), key, transpose_b=True)
        mixed = tf.matmul(tf.nn.softmax(scores), value)
        mixed = tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [-1, tokens, self.width])
        return self._project(mixed, "output")

    def _project(self, x: tf.Tensor, part: str) -> tf.Tensor:
        kernel, bias = getattr(self, f"{part}_kernel"), getattr(self, f"{part}_bias", None)
        y = tf.tensordot(x, kernel.value, 1)
        return y if bias is None else y + bias

    def _split(self, x: tf.Tensor, tokens: int, size: int) -> tf.Tensor:
        return tf.transpose(tf.reshape(x, [-1, tokens, self.heads, size]), [0, 2, 1, 3])


_QKV = ("query", "key", "value")


@register(spec.SelfAttention)
def self_attention(node: Node) -> keras.layers.Layer:
    return SelfAttention(node)


class Chain(keras.layers.Layer):
    """Children one after another; with `residual`, plus the input."""

    def __init__(self, node: Node, residual: bool) -> None:
        super().__init__()
        self.children = [build_layer(child) for child in node.children]
        self.residual = residual
        self.built = True

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        y = x
        for child in self.children:
            y = child(y, training=training) if isinstance(child, BatchNorm | Chain) else child(y)
        return x + y if self.residual else y


@register(spec.Sequential)
def sequential(node: Node) -> keras.layers.Layer:
    return Chain(node, residual=False)


@register(spec.Residual)
def residual(node: Node) -> keras.layers.Layer:
    return Chain(node, residual=True)
