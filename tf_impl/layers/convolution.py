"""Convolutions over HWC images and (steps, features) sequences.

A sequence is an image of height 1.
"""

from __future__ import annotations

import keras
import tensorflow as tf

from parity.common.spec import Node
from parity.common.spec import layers as spec
from parity.tf_impl.layers.products import Products
from parity.tf_impl.layers.registry import EmptySafe, register


class _Convolution(Products):
    """The variables of a convolution, and its geometry in two dimensions."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node
        layer = node.spec
        flat = layer.rank == 1
        self.flat = flat
        self.strides = (1, *layer.steps()) if flat else layer.steps()
        self.dilation = (1, *layer.dilations()) if flat else layer.dilations()

    def build(self, input_shape: tuple) -> None:
        for tensor in self.node.parameters:
            setattr(self, tensor.name, self.add_weight(shape=tensor.shape, name=tensor.name))
        self.built = True

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return (input_shape[0], *self.node.output_shape)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        y = tf.squeeze(self.transform(x[:, None]), 1) if self.flat else self.transform(x)
        return tf.nn.bias_add(y, tf.convert_to_tensor(self.bias)) if self.node.spec.use_bias else y

    def weights_of(self, name: str) -> tf.Tensor:
        """A kernel, with a height of 1 where the layer is one-dimensional."""
        kernel = tf.convert_to_tensor(getattr(self, name))
        return kernel[None] if self.flat else kernel

    def padded(self, x: tf.Tensor) -> tuple[tf.Tensor, str]:
        """The input with its padding, or what TensorFlow calls the padding that is still to come.

        Its third way, explicit padding, takes up to twenty times as long on CPU, and is lost where a
        depthwise convolution is fused with its bias (TensorFlow 2.21), which ends the process.
        """
        layer, shape = self.node.spec, self.node.input_shape
        if layer.is_same(shape):
            return x, "SAME"
        pads = [(0, 0), *([(0, 0)] if self.flat else []), *layer.pads(shape), (0, 0)]
        return (tf.pad(x, pads) if any(map(any, pads)) else x), "VALID"

    def transform(self, x: tf.Tensor) -> tf.Tensor:
        """The layer without its bias, on images."""
        raise NotImplementedError


def _spread(kernel: tf.Tensor, dilation: tuple[int, int]) -> tf.Tensor:
    """The kernel with zeros between its cells, which makes a dilated convolution an ordinary one."""
    height, width, inputs, outputs = kernel.shape
    down, right = dilation
    kernel = tf.reshape(kernel, [height, 1, width, 1, inputs, outputs])
    kernel = tf.pad(kernel, [[0, 0], [0, down - 1], [0, 0], [0, right - 1], [0, 0], [0, 0]])
    kernel = tf.reshape(kernel, [height * down, width * right, inputs, outputs])
    return kernel[: (height - 1) * down + 1, : (width - 1) * right + 1]


def _on_cpu() -> bool:
    """Whether there is no GPU. CPU kernels have no gradients of dilated and grouped convolutions."""
    return not tf.config.list_logical_devices("GPU")


class _Filters(_Convolution):
    """Every filter sees all channels of its group."""

    def transform(self, x: tf.Tensor) -> tf.Tensor:
        return self.product(self._convolved, x, self.weights_of("kernel"))

    def _convolved(self, x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        groups = self.node.spec.groups
        x, padding = self.padded(x)
        if not _on_cpu():
            return tf.nn.conv2d(x, kernel, self.strides, padding, dilations=self.dilation)
        if max(self.dilation) > 1:
            kernel = _spread(kernel, self.dilation)
        if groups == 1:
            return tf.nn.conv2d(x, kernel, self.strides, padding)
        parts = zip(tf.split(x, groups, -1), tf.split(kernel, groups, -1), strict=True)
        return tf.concat([tf.nn.conv2d(a, b, self.strides, padding) for a, b in parts], -1)


class Conv2D(EmptySafe, _Filters):
    """Convolution that takes empty batches."""


@register(spec.Conv2D)
def conv2d(node: Node) -> keras.layers.Layer:
    return Conv2D(node)


@register(spec.Conv1D)
def conv1d(node: Node) -> keras.layers.Layer:
    return Conv2D(node)


class _Channelwise(_Convolution):
    """Every channel on its own."""

    def transform(self, x: tf.Tensor) -> tf.Tensor:
        return self.product(self.depthwise, x, self.weights_of("kernel"))

    def depthwise(self, x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        """Depthwise convolution with the layer's geometry."""
        (down, right), dilation = self.strides, list(self.dilation)
        if down == right and (down == 1 or max(dilation) == 1):
            x, padding = self.padded(x)
            return tf.nn.depthwise_conv2d(x, kernel, [1, down, right, 1], padding, dilations=dilation)
        # The operation has neither unequal strides nor strides with dilation; nor does SAME mean the same then.
        x = tf.pad(x, [(0, 0), *self.node.spec.pads(self.node.input_shape), (0, 0)])
        y = tf.nn.depthwise_conv2d(x, kernel, [1, 1, 1, 1], "VALID", dilations=dilation)
        return y[:, ::down, ::right]


class DepthwiseConv2D(EmptySafe, _Channelwise):
    """Depthwise convolution that takes empty batches."""


@register(spec.DepthwiseConv2D)
def depthwise_conv2d(node: Node) -> keras.layers.Layer:
    return DepthwiseConv2D(node)


def _pointwise(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    return tf.nn.conv2d(x, kernel, 1, "VALID")


class _Separable(_Channelwise):
    """Depthwise, then 1x1."""

    def transform(self, x: tf.Tensor) -> tf.Tensor:
        x = self.product(self.depthwise, x, self.weights_of("depthwise_kernel"))
        return self.product(_pointwise, x, self.weights_of("pointwise_kernel"))


class SeparableConv2D(EmptySafe, _Separable):
    """Separable convolution that takes empty batches."""


@register(spec.SeparableConv2D)
def separable_conv2d(node: Node) -> keras.layers.Layer:
    return SeparableConv2D(node)


class _Transposed(_Convolution):
    """The gradient of a convolution with respect to its input."""

    def transform(self, x: tf.Tensor) -> tf.Tensor:
        return self.product(self._transposed, x, self.weights_of("kernel"))

    def _transposed(self, x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        if max(self.dilation) > 1:
            kernel = _spread(kernel, self.dilation)
        groups = self.node.spec.groups
        if groups == 1:
            return self._transpose(x, kernel)
        parts = zip(tf.split(x, groups, -1), tf.split(kernel, groups, -1), strict=True)
        return tf.concat([self._transpose(a, b) for a, b in parts], -1)

    def _transpose(self, x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        *sides, _ = self.node.output_shape
        shape = tf.stack([tf.shape(x)[0], *([1] if self.flat else []), *sides, kernel.shape[2]])
        return tf.nn.conv2d_transpose(x, kernel, shape, self.strides, self._cropping())

    def _cropping(self) -> str | list:
        layer = self.node.spec
        if layer.is_same(self.node.input_shape):
            return "SAME"
        # Cells beyond the full length come from the output's shape alone.
        crops = [[before, max(after, 0)] for before, after in layer.crops()]
        if not any(map(any, crops)):
            return "VALID"
        return [[0, 0], *([[0, 0]] if self.flat else []), *crops, [0, 0]]


class Conv2DTranspose(EmptySafe, _Transposed):
    """Transposed convolution that takes empty batches."""


@register(spec.Conv2DTranspose)
def conv2d_transpose(node: Node) -> keras.layers.Layer:
    return Conv2DTranspose(node)


@register(spec.Conv1DTranspose)
def conv1d_transpose(node: Node) -> keras.layers.Layer:
    return Conv2DTranspose(node)
