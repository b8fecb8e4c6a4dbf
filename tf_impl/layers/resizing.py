"""Images made larger or smaller by interpolation.

tf.image.resize computes in float32, whatever it is given; only its copying of nearest cells is exact.
"""

from __future__ import annotations

import keras
import tensorflow as tf

from parity.common.spec import Node
from parity.common.spec import layers as spec
from parity.tf_impl.layers.registry import EmptySafe, Function, register


class Repeat(EmptySafe):
    """Each cell a whole number of times."""

    def transform(self, x: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.ResizeNearestNeighbor(
            images=x, size=self.node.output_shape[:2], half_pixel_centers=True
        )


@register(spec.UpSampling2D, spec.Resize)
def resizing(node: Node) -> keras.layers.Layer:
    layer = node.spec
    before, after = node.input_shape[:2], node.output_shape[:2]
    pairs = list(zip(before, after, strict=True))
    if layer.interpolation == "nearest":
        if not any(b % a for a, b in pairs):
            return Repeat(node)
        rows, columns = (layer.nearest_cells(*pair) for pair in pairs)
        return Function(lambda x: tf.gather(tf.gather(x, rows, axis=1), columns, axis=2))
    rows, columns = (layer.matrix(*pair) for pair in pairs)
    channels = node.output_shape[-1]

    def apply(x: tf.Tensor) -> tf.Tensor:
        x = tf.reshape(x, [-1, before[0], before[1] * channels])
        x = tf.matmul(tf.constant(rows, x.dtype), x)
        x = tf.reshape(x, [-1, after[0], before[1], channels])
        return tf.matmul(tf.constant(columns, x.dtype), x)

    return Function(apply)
