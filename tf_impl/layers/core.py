"""Dense layers, activations, and changes of shape."""

from __future__ import annotations

import keras
import tensorflow as tf

from common.spec import Node
from common.spec import layers as spec
from tf_impl.layers.registry import Function, register


@register(spec.Dense)
def dense(node: Node) -> keras.layers.Layer:
    return keras.layers.Dense(node.spec.units, use_bias=node.spec.use_bias)


def gelu(x: tf.Tensor) -> tf.Tensor:
    """x * Phi(x) with the error function. keras.activations.gelu passes 1/sqrt(2) through float32."""
    return 0.5 * x * (1 + tf.math.erf(x * tf.constant(0.5**0.5, x.dtype)))


@register(spec.Activation)
def activation(node: Node) -> keras.layers.Layer:
    return Function({"relu": tf.nn.relu, "gelu": gelu, "tanh": tf.math.tanh}[node.spec.function])


@register(spec.Flatten)
def flatten(node: Node) -> keras.layers.Layer:
    channels_first = node.spec.order == "chw"

    def apply(x: tf.Tensor) -> tf.Tensor:
        rank = x.shape.rank
        if channels_first and rank > 2:
            x = tf.transpose(x, [0, rank - 1, *range(1, rank - 1)])
        return tf.reshape(x, [-1, *node.output_shape])

    return Function(apply)
