"""How a spec class finds its function, and what every layer has in common."""

from __future__ import annotations

from collections.abc import Callable

import keras
import tensorflow as tf

from parity.common.base.registry import Registry
from parity.common.execution.hooks import around
from parity.common.execution.pass_context import Context
from parity.common.spec import Node

_BUILDERS: Registry[Callable[[Node], keras.layers.Layer]] = Registry()
register = _BUILDERS.register


def build_layer(node: Node) -> keras.layers.Layer:
    """The layer of a node, its children included, its variables created."""
    layer = around("layer", _BUILDERS[type(node.spec)])(node)
    if not layer.built:
        layer.build((None, *node.input_shape))
    layer.canonical_path = node.path
    return layer


class NodeLayer(keras.layers.Layer):
    """A layer of a node. The node's tensors are variables, attributes of their canonical names."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node

    def build(self, input_shape: tuple) -> None:
        for tensor in self.node.parameters:
            setattr(self, tensor.name, self.add_weight(shape=tensor.shape, name=tensor.name))
        self.built = True


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


class EmptySafe(NodeLayer):
    """Base of layers whose oneDNN kernels cannot take an empty batch.

    In float32 they give the input's shape for the output's (convolution) or end the process
    (pooling); seen with TensorFlow 2.21. An empty local batch is right where a tail is small.
    The guard costs a tenth of a small network's speed, so it is there only where it is needed.
    """

    guarded = False

    def call(self, x: tf.Tensor) -> tf.Tensor:
        if not self.guarded:
            return self.transform(x)
        return tf.cond(
            tf.shape(x)[0] > 0,
            lambda: self.transform(x),
            lambda: tf.zeros([0, *self.node.output_shape], x.dtype),
        )

    def transform(self, x: tf.Tensor) -> tf.Tensor:
        """What the layer makes of a batch that is not empty."""
        raise NotImplementedError


class Windows(EmptySafe):
    """Base of layers with windows over images; a sequence is an image of height 1."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.flat = node.spec.rank == 1
        self.strides = self.of_image(node.spec.steps(), 1)

    def of_image(self, axes: tuple, height: object) -> tuple:
        """What the spec has for each axis, for both axes of an image: `height` for that of a sequence."""
        return (height, *axes) if self.flat else axes

    def paddings(self, pads: tuple) -> list:
        """Cells (before, after) along each axis of the spec, as tf.pad takes them."""
        return [(0, 0), *self.of_image(pads, (0, 0)), (0, 0)]

    def transform(self, x: tf.Tensor) -> tf.Tensor:
        return tf.squeeze(self.on_images(x[:, None]), 1) if self.flat else self.on_images(x)

    def on_images(self, x: tf.Tensor) -> tf.Tensor:
        """What the layer makes of images."""
        raise NotImplementedError
