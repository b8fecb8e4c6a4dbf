"""Dense layers, activations, and changes of shape."""

from __future__ import annotations

import math

import keras
import tensorflow as tf

from parity.common.execution.pass_context import Context
from parity.common.spec import Node
from parity.common.spec import layers as spec
from parity.tf_impl.layers.products import Products
from parity.tf_impl.layers.registry import Contextual, Function, NodeLayer, register


class Dense(Products, keras.layers.Dense):
    """Keras's own, whose product may be low."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        if self.low is None:
            return super().call(x)
        y = self.project(x, tf.convert_to_tensor(self.kernel))
        return y + self.bias if self.use_bias else y


@register(spec.Dense)
def dense(node: Node) -> keras.layers.Layer:
    return Dense(node.spec.units, use_bias=node.spec.use_bias)


def gelu(x: tf.Tensor) -> tf.Tensor:
    """x * Phi(x) with the error function. keras.activations.gelu passes 1/sqrt(2) through float32."""
    return 0.5 * x * (1 + tf.math.erf(x * tf.constant(0.5**0.5, x.dtype)))


def _gelu_tanh(x: tf.Tensor) -> tf.Tensor:
    # tf.nn.gelu and tf.nn.leaky_relu, too, pass their constants through float32. Powers take ten times as long as products.
    return 0.5 * x * (1 + tf.math.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * (x * x * x))))


_FUNCTIONS = {
    "relu": tf.nn.relu,
    "tanh": tf.math.tanh,
    "elu": tf.nn.elu,
    "gelu_tanh": _gelu_tanh,
    "quick_gelu": lambda x: x * tf.math.sigmoid(1.702 * x),
    "silu": tf.nn.silu,
    "sigmoid": tf.math.sigmoid,
    "softmax": tf.nn.softmax,
    "log_softmax": tf.nn.log_softmax,
    "hard_swish": lambda x: x * tf.nn.relu6(x + 3) / 6,
    "relu6": tf.nn.relu6,
    "softplus": tf.math.softplus,
}


@register(spec.Activation)
def activation(node: Node) -> keras.layers.Layer:
    slope = node.spec.negative_slope
    if node.spec.function == "leaky_relu":
        return Function(lambda x: tf.where(x > 0, x, slope * x))
    return Function(gelu if node.spec.function == "gelu" else _FUNCTIONS[node.spec.function])


@register(spec.PReLU)
class PReLU(NodeLayer):
    """max(x, 0) + alpha min(x, 0)."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(x) - self.alpha * tf.nn.relu(-x)


@register(spec.Flatten)
def flatten(node: Node) -> keras.layers.Layer:
    channels_first = node.spec.order == "chw"

    def apply(x: tf.Tensor) -> tf.Tensor:
        rank = x.shape.rank
        if channels_first and rank > 2:
            x = tf.transpose(x, [0, rank - 1, *range(1, rank - 1)])
        return tf.reshape(x, [-1, *node.output_shape])

    return Function(apply)


@register(spec.Reshape)
def reshape(node: Node) -> keras.layers.Layer:
    return Function(lambda x: tf.reshape(x, [-1, *node.output_shape]))


@register(spec.Permute)
def permute(node: Node) -> keras.layers.Layer:
    return Function(lambda x: tf.transpose(x, [0, *node.spec.dims]))


@register(spec.Slice)
def slice_(node: Node) -> keras.layers.Layer:
    return Function(lambda x: x[..., node.spec.start : node.spec.stop])


@register(spec.ActivityPenalty)
class ActivityPenalty(Contextual, NodeLayer):
    """The identity, which leaves a penalty with the context."""

    def call(self, x: tf.Tensor, context: Context) -> tf.Tensor:
        absolute, squares = tf.reduce_sum(tf.abs(x)), tf.reduce_sum(tf.square(x))
        context.penalties.append(self.node.spec.l1 * absolute + self.node.spec.l2 * squares)
        return x
