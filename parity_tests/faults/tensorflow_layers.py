"""Faults of dense layers, convolutions, normalisations, activations, dropout and losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import keras
import numpy as np
import tensorflow as tf

from parity.common.execution.hooks import Hook
from parity.common.spec import layers as spec
from parity.tf_impl import losses
from parity.tf_impl.layers import convolution, core, random
from parity.tf_impl.model import Model
from parity_tests.faults.tensorflow_base import fault
from parity_tests.helpers.hooks import hooked


def built_as(kind: type, **change: Any) -> Any:
    """Build the layers of a kind with other settings than the spec's."""

    def layer(owner: Any, part: Hook, node: Any) -> keras.layers.Layer:
        changed = isinstance(node.spec, kind)
        return part(replace(node, spec=node.spec.model_copy(update=change)) if changed else node)

    return hooked(layer=layer)


def after(kind: type, change: Callable[[Any, tf.Tensor], tf.Tensor]) -> Any:
    """Change what the layers of a kind put out: change(layer's node, y)."""

    def layer(owner: Any, part: Hook, node: Any) -> keras.layers.Layer:
        built = part(node)
        if isinstance(node.spec, kind):
            call = built.call
            built.call = lambda *given, **more: change(node, call(*given, **more))
        return built

    return hooked(layer=layer)


def as_float32(x: Any) -> Any:
    """A number that once was a float32."""
    return float(np.float32(x))


# Normalisations.


@fault
def batch_norm_statistics_per_replica() -> Iterator[None]:  # 20
    with built_as(spec.BatchNorm, statistics="per_replica"):
        yield


@fault
def batch_norm_statistics_of_all_replicas() -> Iterator[None]:  # 20: the reverse
    with built_as(spec.BatchNorm, statistics="global"):
        yield


@fault
def running_variance_unbiased() -> Iterator[None]:  # 19
    with built_as(spec.BatchNorm, running_variance="unbiased"):
        yield


@fault
def batch_norm_epsilon() -> Iterator[None]:  # 19
    with built_as(spec.BatchNorm, epsilon=1e-5):
        yield


@fault
def batch_norm_momentum_of_the_other_framework() -> Iterator[None]:  # 19: no training loss sees it
    with built_as(spec.BatchNorm, decay=0.01):
        yield


@fault
def layer_norm_epsilon() -> Iterator[None]:  # 32
    def layer(owner: Any, part: Hook, node: Any) -> Any:
        stock = keras.layers.LayerNormalization
        return stock(epsilon=1e-5) if isinstance(node.spec, spec.LayerNorm) else part(node)

    with hooked(layer=layer):
        yield


@fault
def evaluated_in_training_mode() -> Iterator[None]:  # 21
    real = Model.context
    with patch.object(Model, "context", lambda self, training, *rest: real(self, True, *rest)):
        yield


@fault
def trained_in_inference_mode() -> Iterator[None]:  # 21: the reverse, as under trainable=False
    real = Model.context
    with patch.object(Model, "context", lambda self, training, *rest: real(self, False, *rest)):
        yield


# Activations, and constants on their way through float32.


@fault
def gelu_through_float32() -> Iterator[None]:  # 33: Keras's own, about 5e-9 off
    with patch.object(core, "gelu", lambda x: keras.activations.gelu(x, approximate=False)):
        yield


@fault
def gelu_approximated() -> Iterator[None]:  # 32
    with patch.object(core, "gelu", core._gelu_tanh):
        yield


@fault
def slope_of_the_other_framework() -> Iterator[None]:
    with built_as(spec.Activation, negative_slope=0.01):
        yield


@fault
def dropout_rate_through_float32() -> Iterator[None]:  # 33
    real = random.keep_mask

    def keep_mask(x: Any, context: Any, path: str, shape: Any, rate: float) -> tf.Tensor:
        factor = 1 / (1 - rate)
        return real(x, context, path, shape, rate) * (as_float32(factor) / factor)

    with patch.object(random, "keep_mask", keep_mask):
        yield


@fault
def loss_through_float32() -> Iterator[None]:  # 33: a Keras loss without a dtype of its own
    def loss(step: Any, part: Hook, outputs: tf.Tensor, targets: tf.Tensor, context: Any) -> tuple:
        narrow = part(tf.cast(outputs, tf.float32), targets, context)
        return tuple(tf.cast(x, outputs.dtype) for x in narrow)

    with hooked(loss=loss):
        yield


# Layout.


@fault
def square_kernel_transposed() -> Iterator[None]:  # 27
    real = core.Dense.call

    def call(self: Any, x: tf.Tensor) -> tf.Tensor:
        kernel = tf.convert_to_tensor(self.kernel)
        if kernel.shape[0] != kernel.shape[1]:
            return real(self, x)
        return tf.matmul(x, kernel, transpose_b=True) + self.bias

    with patch.object(core.Dense, "call", call):
        yield


@fault
def dense_bias_forgotten() -> Iterator[None]:  # of the layers as they were loaded; it trains, at no effect
    real = core.Dense.call
    with patch.object(core.Dense, "call", lambda self, x: real(self, x) - self.bias):
        yield


def _kernel(change: Callable[[tf.Tensor], tf.Tensor]) -> Any:
    """Change the kernels (height, width, in, out) of convolutions."""
    real = convolution._Convolution.weights_of
    return patch.object(convolution._Convolution, "weights_of", lambda self, name: change(real(self, name)))


@fault
def convolution_transposed() -> Iterator[None]:  # 27: height for width
    with _kernel(lambda kernel: tf.transpose(kernel, [1, 0, 2, 3])):
        yield


@fault
def convolution_flipped() -> Iterator[None]:  # 27: a convolution, where a cross-correlation was meant
    with _kernel(lambda kernel: kernel[::-1, ::-1]):
        yield


@fault
def flattened_in_the_other_order() -> Iterator[None]:  # 28
    with built_as(spec.Flatten, order="chw"):
        yield


@fault
def padding_on_the_other_side() -> Iterator[None]:  # 29
    def padded(self: Any, x: tf.Tensor) -> tuple[tf.Tensor, str]:
        pads = [(end, start) for start, end in self.node.spec.pads(self.node.input_shape)]
        return tf.pad(x, [(0, 0), *([(0, 0)] if self.flat else []), *pads, (0, 0)]), "VALID"

    with patch.object(convolution._Convolution, "padded", padded):
        yield


@fault
def padding_counted_in_the_mean() -> Iterator[None]:
    with built_as(spec.AveragePool2D, count_padding=True):
        yield


@fault
def patches_column_by_column() -> Iterator[None]:  # 28: the tokens of an image, the axes of its grid swapped
    def turned(node: Any, y: tf.Tensor) -> tf.Tensor:
        side = node.input_shape[0] // node.spec.size
        grid = tf.reshape(y, [-1, side, side, y.shape[-1]])
        return tf.reshape(tf.transpose(grid, [0, 2, 1, 3]), [-1, side * side, y.shape[-1]])

    with after(spec.Patchify, turned):
        yield


@fault
def branches_in_the_other_order() -> Iterator[None]:  # 28
    def exchanged(node: Any, y: tf.Tensor) -> tf.Tensor:
        first = node.children[0].output_shape[-1]
        return tf.concat([y[..., first:], y[..., :first]], -1)

    with after(spec.Concatenate, exchanged):
        yield


# Dropout.


@fault
def dropout_keyed_by_place() -> Iterator[None]:  # 26: the same masks on every replica
    real = Model.context

    def context(self: Any, training: bool, inputs: Any, ids: Any, *rest: Any) -> Any:
        return real(self, training, inputs, tf.range(tf.size(ids, tf.int64)), *rest)

    with patch.object(Model, "context", context):
        yield


@fault
def dropout_of_another_seed() -> Iterator[None]:  # 26
    real = random.keep_mask

    def keep_mask(x: Any, context: Any, *rest: Any) -> tf.Tensor:
        return real(x, replace(context, seed=context.seed + 1), *rest)

    with patch.object(random, "keep_mask", keep_mask):
        yield


# Losses.


@fault
def penalty_on_weights_forgotten() -> Iterator[None]:  # regularizers that a loop of one's own does not add
    with hooked(penalized=lambda step, part, means, weights: means):
        yield


@fault
def penalty_on_activities_forgotten() -> Iterator[None]:  # the same of add_loss
    with patch.object(core.ActivityPenalty, "call", lambda self, x, context: x):
        yield


@fault
def penalty_halved() -> Iterator[None]:  # 16: wd * w, where the gradient of wd * sum(w^2) was meant
    def penalized(step: Any, part: Hook, means: Any, weights: list) -> Any:
        spec, loss = step.spec, step.spec.loss
        step.spec = spec.model_copy(update={"loss": loss.model_copy(update={"l2": loss.l2 / 2})})
        try:
            return part(means, weights)
        finally:
            step.spec = spec

    with hooked(penalized=penalized):
        yield


@fault
def label_smoothing_forgotten() -> Iterator[None]:
    real = losses.loss_sum_and_count

    def loss(kind: Any, *rest: Any) -> tuple:
        return real(kind.model_copy(update={"label_smoothing": 0.0}), *rest)

    with patch.object(losses, "loss_sum_and_count", loss):
        yield
