"""Pooling, padding, and images as tokens."""

from __future__ import annotations

import keras
import tensorflow as tf

from parity.common.spec import Node
from parity.common.spec import layers as spec
from parity.tf_impl.layers.registry import Function, Windows, register


class _Pool(Windows):
    """Windows and padding."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.size = self.of_image(node.spec.window(), 1)
        self.pads = self.paddings(node.spec.pads(node.input_shape))
        self.padded = any(map(any, self.pads))


@register(spec.MaxPool2D, spec.MaxPool1D)
class MaxPool(_Pool):
    """Maximum over windows."""

    def on_images(self, x: tf.Tensor) -> tf.Tensor:
        # Not explicit padding, which takes ten times as long on CPU.
        if self.node.spec.is_same(self.node.input_shape):
            return tf.nn.max_pool2d(x, self.size, self.strides, "SAME")
        if self.padded:
            x = tf.pad(x, self.pads, constant_values=x.dtype.min)
        return tf.nn.max_pool2d(x, self.size, self.strides, "VALID")


@register(spec.AveragePool2D, spec.AveragePool1D)
class AveragePool(_Pool):
    """Mean over padded windows, put right where fewer cells count."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        counts = node.spec.counts(node.input_shape)
        full = float(self.size[0] * self.size[1])
        self.correction = None if (counts == full).all() else full / counts

    def on_images(self, x: tf.Tensor) -> tf.Tensor:
        if self.padded:
            x = tf.pad(x, self.pads)
        y = tf.nn.avg_pool2d(x, self.size, self.strides, "VALID")
        return y if self.correction is None else y * tf.constant(self.correction, y.dtype)


@register(spec.GlobalAveragePool)
def global_average_pool(node: Node) -> keras.layers.Layer:
    return Function(lambda x: tf.reduce_mean(x, list(range(1, x.shape.rank - 1))))


@register(spec.GlobalMaxPool)
def global_max_pool(node: Node) -> keras.layers.Layer:
    return Function(lambda x: tf.reduce_max(x, list(range(1, x.shape.rank - 1))))


@register(spec.ZeroPad2D)
def zero_pad2d(node: Node) -> keras.layers.Layer:
    pads = [(0, 0), *node.spec.pads(), (0, 0)]
    return Function(lambda x: tf.pad(x, pads))


@register(spec.Patchify)
def patchify(node: Node) -> keras.layers.Layer:
    size = node.spec.size
    height, width, channels = node.input_shape

    def apply(x: tf.Tensor) -> tf.Tensor:
        x = tf.reshape(x, [-1, height // size, size, width // size, size, channels])
        return tf.reshape(tf.transpose(x, [0, 1, 3, 2, 4, 5]), [-1, *node.output_shape])

    return Function(apply)
