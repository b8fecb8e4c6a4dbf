"""Pooling, resizing, and images as tokens."""

from __future__ import annotations

import keras
import tensorflow as tf

from common.spec import Node
from common.spec import layers as spec
from tf_impl.layers.registry import EmptySafe, Function, register


class MaxPool2D(EmptySafe, keras.layers.MaxPooling2D):
    """keras.layers.MaxPooling2D that takes empty batches."""


@register(spec.MaxPool2D)
def max_pool2d(node: Node) -> keras.layers.Layer:
    return MaxPool2D(node.spec.size)


@register(spec.GlobalAveragePool)
def global_average_pool(node: Node) -> keras.layers.Layer:
    return Function(lambda x: tf.reduce_mean(x, list(range(1, x.shape.rank - 1))))


@register(spec.Patchify)
def patchify(node: Node) -> keras.layers.Layer:
    size = node.spec.size
    height, width, channels = node.input_shape

    def apply(x: tf.Tensor) -> tf.Tensor:
        x = tf.reshape(x, [-1, height // size, size, width // size, size, channels])
        return tf.reshape(tf.transpose(x, [0, 1, 3, 2, 4, 5]), [-1, *node.output_shape])

    return Function(apply)
