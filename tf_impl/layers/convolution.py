"""Convolutions over HWC images and (steps, features) sequences.

A sequence is an image of height 1.
"""

from __future__ import annotations

import tensorflow as tf

from parity.common.spec import Node
from parity.common.spec import layers as spec
from parity.tf_impl.layers.products import Products
from parity.tf_impl.layers.registry import Windows, register


class _Convolution(Products, Windows):
    """A convolution's geometry in two dimensions, and its bias."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.dilation = self.of_image(node.spec.dilations(), 1)

    def transform(self, x: tf.Tensor) -> tf.Tensor:
        y = super().transform(x)
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
        pads = self.paddings(layer.pads(shape))
        return (tf.pad(x, pads) if any(map(any, pads)) else x), "VALID"


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


@register(spec.Conv2D, spec.Conv1D)
class Convolution(_Convolution):
    """Every filter sees all channels of its group."""

    def on_images(self, x: tf.Tensor) -> tf.Tensor:
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


@register(spec.DepthwiseConv2D)
class DepthwiseConv2D(_Convolution):
    """Every channel on its own."""

    def on_images(self, x: tf.Tensor) -> tf.Tensor:
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


def _pointwise(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    return tf.nn.conv2d(x, kernel, 1, "VALID")


@register(spec.SeparableConv2D)
class SeparableConv2D(DepthwiseConv2D):
    """Depthwise, then 1x1."""

    def on_images(self, x: tf.Tensor) -> tf.Tensor:
        x = self.product(self.depthwise, x, self.weights_of("depthwise_kernel"))
        return self.product(_pointwise, x, self.weights_of("pointwise_kernel"))


@register(spec.Conv2DTranspose, spec.Conv1DTranspose)
class Transposed(_Convolution):
    """The gradient of a convolution with respect to its input."""

    def on_images(self, x: tf.Tensor) -> tf.Tensor:
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
        shape = tf.stack([tf.shape(x)[0], *self.of_image(sides, 1), kernel.shape[2]])
        return tf.nn.conv2d_transpose(x, kernel, shape, self.strides, self._cropping())

    def _cropping(self) -> str | list:
        layer = self.node.spec
        if layer.is_same(self.node.input_shape):
            return "SAME"
        # Cells beyond the full length come from the output's shape alone.
        crops = tuple((before, max(after, 0)) for before, after in layer.crops())
        return self.paddings(crops) if any(map(any, crops)) else "VALID"
