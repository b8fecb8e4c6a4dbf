"""Products of matrices with low operands, as `common/spec/precision.py` defines them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import keras
import tensorflow as tf

from parity.common.spec import TrainSpec

# A product of two tensors: linear in each of them.
Bilinear = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


@dataclass(frozen=True)
class Low:
    """What products round to.

    dtype: of operands and results. native: whether kernels of that type may be used, else float32
    kernels are given the rounded operands.
    """

    dtype: tf.DType
    native: bool


class Products(keras.layers.Layer):
    """A mixin for layers that multiply matrices. `low` is None where nothing is rounded."""

    low: Low | None = None

    def matmul(self, a: tf.Tensor, b: tf.Tensor, transpose_b: bool = False) -> tf.Tensor:
        """Product of two activations (..., m, k) and (..., k, n)."""
        return self.product(lambda a, b: tf.matmul(a, b, transpose_b=transpose_b), a, b, weight=False)

    def project(self, x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        """Product of an activation (..., k) and a weight (k, n)."""
        return self.product(lambda x, kernel: tf.tensordot(x, kernel, 1), x, kernel)

    def product(self, function: Bilinear, a: tf.Tensor, b: tf.Tensor, weight: bool = True) -> tf.Tensor:
        """function(a, b); weight: whether b is one, whose gradient is not rounded."""
        return function(a, b) if self.low is None else _rounded_product(function, a, b, self.low, weight)


def set_low(root: keras.layers.Layer, low: Low | None) -> None:
    """Have all products of a layer and of what is in it round to `low`."""
    for part in root._flatten_layers():
        if isinstance(part, Products):
            part.low = low


def low_of(spec: TrainSpec, gpu: bool) -> Low | None:
    """What the products of a spec's layers round to."""
    if spec.low_dtype is None:
        return None
    return Low(tf.as_dtype(spec.low_dtype), sums_in_float32(spec.low_dtype, gpu))


@functools.lru_cache
def sums_in_float32(dtype: str, gpu: bool) -> bool:
    """Whether kernels of this type sum products in float32; if not, float32 kernels are used instead.

    On CPU float16 is not even tried: gradients of convolutions are 15 units in the last place off
    (TensorFlow 2.21). On GPUs TensorFlow asks its libraries to sum in float32.
    """
    if gpu:
        return True
    if dtype == "float16":
        return False
    # Exact in float32, whatever the order; what is rounded on the way, as some processors do it, is another number.
    rows = 1 + tf.cast(tf.reshape(tf.range(2 * 4096), [2, 4096]) % 7, tf.float32) / 8
    images, kernel = tf.reshape(rows, [2, 8, 8, 64]), tf.reshape(rows, [8, 8, 64, 2])

    def products(kind: tf.DType) -> list[tf.Tensor]:
        a, x, w = (tf.cast(each, kind) for each in (rows, images, kernel))
        return [tf.matmul(a, a, transpose_b=True), tf.nn.conv2d(x, w, 1, "VALID")]

    low = tf.as_dtype(dtype)
    pairs = zip(products(low), products(tf.float32), strict=True)
    return all(bool(tf.reduce_all(y == tf.cast(exact, low))) for y, exact in pairs)


def _rounded_product(function: Bilinear, a: tf.Tensor, b: tf.Tensor, low: Low, weight: bool) -> tf.Tensor:
    """low(a) low(b), rounded, and so are the gradients of all but a weight."""

    def operand(x: tf.Tensor) -> tf.Tensor:
        x = tf.cast(x, low.dtype)
        return x if low.native else tf.cast(x, tf.float32)

    def rounded(y: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.cast(y, low.dtype), tf.float32)

    @tf.custom_gradient
    def multiply(a: tf.Tensor, b: tf.Tensor) -> tuple:
        a, b = operand(a), operand(b)

        def gradient(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            dy = operand(dy)
            da = rounded(_gradient(lambda a: function(a, b), a, dy))
            if not weight:
                return da, rounded(_gradient(lambda b: function(a, b), b, dy))
            wide_a, wide_b, wide_dy = (tf.cast(x, tf.float32) for x in (a, b, dy))
            return da, _gradient(lambda b: function(wide_a, b), wide_b, wide_dy)

        return rounded(function(a, b)), gradient

    return multiply(a, b)


def _gradient(linear: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
    """The gradient of a linear function. A graph leaves out the function itself, whose value nobody needs."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = linear(x)
    return tape.gradient(y, x, dy)
