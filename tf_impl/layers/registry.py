"""How a spec class finds its function, and what every layer has in common."""

from __future__ import annotations

from collections.abc import Callable

import keras
import tensorflow as tf

from parity.common.execution.hooks import around
from parity.common.spec import Node
from parity.tf_impl.context import Context

_BUILDERS: dict[type, Callable[[Node], keras.layers.Layer]] = {}


def register(spec_class: type) -> Callable:
    """Decorator: the function that turns a node of `spec_class` into a layer."""

    def remember(builder: Callable[[Node], keras.layers.Layer]) -> Callable:
        _BUILDERS[spec_class] = builder
        return builder

    return remember


def build_layer(node: Node) -> keras.layers.Layer:
    """The layer of a node, its children included, its variables created."""
    layer = around("layer", _BUILDERS[type(node.spec)])(node)
    if not layer.built:
        layer.build((None, *node.input_shape))
    layer.canonical_path = node.path
    return layer


class Contextual(keras.layers.Layer):
    """A layer whose call(x, context) also takes the Context of the step."""


def call(layer: keras.layers.Layer, x: tf.Tensor, context: Context) -> tf.Tensor:
    """Apply a layer, with the context where it takes one."""
    y = layer(x, context=context) if isinstance(layer, Contextual) else layer(x)
    return y if context.taps is None else context.taps(layer.canonical_path, x, y)


class Function(keras.layers.Layer):
    """A layer without variables."""

    def __init__(self, function: Callable[[tf.Tensor], tf.Tensor]) -> None:
        super().__init__()
        self.function = function

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.function(x)


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
