"""Functions of TensorFlow's and Keras's that take through float32 what a float64 model computes, in float64."""

from __future__ import annotations

import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from parity.common.external.process.exact import ExactFunctions
from parity.tf_impl.external.widening import held, wide
from parity.tf_impl.private_names import backend, current_path, math_ops

EXACT = ExactFunctions()
held.append(EXACT.instead_of)
_grayscale, _standardization = tf.image.rgb_to_grayscale, tf.image.per_image_standardization
# Methods that are computed in float32.
_ROUNDED = ("bilinear", "bicubic")
_converted, _moments = keras.layers.Normalization.convert_weight, keras.layers.BatchNormalization._moments
_cast, _resize, _ctc, _keras_ctc = tf.cast, tf.image.resize, tf.nn.ctc_loss, backend.nn.ctc_loss
_old_ctc = tf.compat.v1.nn.ctc_loss


def _note(what: Any) -> None:
    where = current_path()
    EXACT.note(f"{what} in {where}" if where else str(what))


def _exact_cast(x: Any, dtype: Any, name: str | None = None) -> Any:
    if type(x) is not float:
        return _cast(x, wide(dtype, sys._getframe(1)), name)
    if float(np.float32(x)) != x and tf.as_dtype(dtype) == tf.float64:
        _note(f"{x:.10g}")
    return _cast(np.float64(x), dtype, name)


def _exact_leaky_relu(features: Any, alpha: float = 0.2, name: str | None = None) -> Any:
    features = tf.convert_to_tensor(features)
    _note(f"{alpha:.10g}")
    return tf.where(features > 0, features, tf.constant(alpha, features.dtype) * features, name)


def _exact_resize(
    images: Any, size: Any, method: Any = "bilinear", *args: Any, antialias: bool = False, **kwargs: Any
) -> Any:
    """Interpolation (batch, height, width, channels) with half-pixel centres, in the type of the images."""
    images = tf.convert_to_tensor(images)
    known = images.shape.rank == 4 and None not in images.shape[1:3] and not tf.is_tensor(size)
    plain = not (args or antialias or kwargs.get("preserve_aspect_ratio"))
    if method not in _ROUNDED or images.dtype != tf.float64 or not (known and plain):
        resized = _resize(images, size, method, *args, antialias=antialias, **kwargs)
        return tf.cast(resized, images.dtype) if images.dtype == tf.float64 else resized
    _note(f"{method} resizing, which is computed in float32,")
    sizes = zip(images.shape[1:3], size, strict=True)
    rows, columns = (_interpolation(had, int(has), method) for had, has in sizes)
    return tf.einsum("bhwc,yh,xw->byxc", images, rows, columns)


def _interpolation(had: int, has: int, method: str) -> Any:
    """(has, had): the weights of an axis' elements in each of the new ones."""
    places = (np.arange(has) + 0.5) * had / has - 0.5
    if method == "bilinear":
        places = np.clip(places, 0, had - 1)
        return np.maximum(0.0, 1 - np.abs(places[:, None] - np.arange(had)))
    # Keys' kernel with a = -1/2, from a table of 1024 steps; what would be outside has no weight.
    apart = np.abs((np.floor(places) + np.rint(places % 1 * 1024) / 1024)[:, None] - np.arange(had))
    near, far = 1.5 * apart**3 - 2.5 * apart**2 + 1, -0.5 * apart**3 + 2.5 * apart**2 - 4 * apart + 2
    weights = np.where(apart < 1, near, np.where(apart < 2, far, 0.0))
    return weights / weights.sum(1, keepdims=True)


def _exact_keras_ctc(
    target: Any, output: Any, target_length: Any, output_length: Any, mask_index: int = 0
) -> Any:
    """Keras's, without its cast of logits (samples, frames, classes) to float32."""
    output = tf.convert_to_tensor(output)
    if output.dtype != tf.float64:
        return _keras_ctc(target, output, target_length, output_length, mask_index)
    return tf.nn.ctc_loss(target, output, target_length, output_length, False, blank_index=mask_index)


def _exact_ctc(
    labels: Any,
    logits: Any,
    label_length: Any,
    logit_length: Any,
    logits_time_major: bool = True,
    unique: Any = None,
    blank_index: int | None = None,
    name: str | None = None,
) -> Any:
    """(samples,): the negative log likelihood of dense labels (samples, labels), in the type of the logits.

    By the forward variables of Graves et al. (2006), in logarithms. TensorFlow's code makes numbers of float32.
    """
    if isinstance(labels, tf.SparseTensor) or tf.as_dtype(logits.dtype) != tf.float64:
        return _ctc(labels, logits, label_length, logit_length, logits_time_major, unique, blank_index, name)
    _note("the CTC loss, which is computed in float32,")
    labels, blank = tf.cast(labels, tf.int32), (blank_index or 0) % logits.shape[-1]
    scores = tf.nn.log_softmax(tf.transpose(logits, (1, 0, 2)) if logits_time_major else logits)
    # Between all labels, and around them, a blank.
    states = tf.reshape(tf.stack([tf.fill(tf.shape(labels), blank), labels], 2), (tf.shape(labels)[0], -1))
    states = tf.pad(states, [[0, 0], [0, 1]], constant_values=blank)
    skips = tf.pad(states[:, 2:] != states[:, :-2], [[0, 0], [2, 0]]) & (states != blank)
    seen = tf.gather(scores, states, axis=2, batch_dims=1)
    never = tf.constant(-1e30, tf.float64)
    reached = tf.where(tf.range(tf.shape(states)[1]) < 2, seen[:, 0], never)
    by_frame = [reached]
    for frame in range(1, seen.shape[1]):
        one, two = (tf.pad(reached, [[0, 0], [n, 0]], constant_values=-1e30)[:, :-n] for n in (1, 2))
        ways = tf.stack([reached, one, tf.where(skips, two, never)])
        reached = tf.reduce_logsumexp(ways, 0) + seen[:, frame]
        by_frame.append(reached)
    last = tf.gather(tf.stack(by_frame, 1), tf.cast(logit_length, tf.int32) - 1, batch_dims=1)
    ends = 2 * tf.cast(label_length, tf.int32)[:, None] - [[0, 1]]
    ways = tf.where(ends < 0, never, tf.gather(last, tf.maximum(ends, 0), batch_dims=1))
    return -tf.reduce_logsumexp(ways, 1)


def _exact_old_ctc(
    labels: Any,
    inputs: Any = None,
    sequence_length: Any = None,
    *args: Any,
    time_major: bool = True,
    **kwargs: Any,
) -> Any:
    """As `_exact_ctc`, of labels in a sparse tensor and with the last class as the blank, as TensorFlow 1 has it."""
    if inputs is None or args or kwargs or tf.as_dtype(inputs.dtype) != tf.float64:
        return _old_ctc(labels, inputs, sequence_length, *args, time_major=time_major, **kwargs)
    samples = tf.cast(labels.dense_shape[0], tf.int32)
    counts = tf.math.bincount(tf.cast(labels.indices[:, 0], tf.int32), minlength=samples, maxlength=samples)
    return _exact_ctc(
        tf.sparse.to_dense(labels),
        inputs,
        counts,
        sequence_length,
        time_major,
        blank_index=inputs.shape[-1] - 1,
    )


def _exact_grayscale(images: Any, name: str | None = None) -> Any:
    """(..., 1): the luma of (..., 3), in the type of the images."""
    images = tf.convert_to_tensor(images)
    if images.dtype != tf.float64:
        return _grayscale(images, name)
    _note("the luma of pictures, which is computed in float32,")
    return tf.tensordot(images, tf.constant([0.2989, 0.5870, 0.1140], tf.float64), 1)[..., None]


def _exact_standardization(image: Any) -> Any:
    """Of pictures (..., height, width, channels), each with a mean of 0 and a variance of 1, in their type."""
    image = tf.convert_to_tensor(image)
    if image.dtype != tf.float64:
        return _standardization(image)
    _note("the mean and variance of pictures, which are computed in float32,")
    axes = [-3, -2, -1]
    least = tf.math.rsqrt(tf.cast(tf.reduce_prod(tf.shape(image)[-3:]), tf.float64))
    deviation = tf.maximum(tf.math.reduce_std(image, axes, keepdims=True), least)
    return (image - tf.reduce_mean(image, axes, keepdims=True)) / deviation


def _exact_l1(regularizer: Any, x: Any) -> Any:
    """With the factor that was written; Keras keeps it as float32."""
    kept = np.asarray(regularizer.l1)
    written = float(str(kept))
    if kept.dtype == np.float32 and float(kept) != written:
        _note(f"{written:.10g}")
    return tf.cast(np.float64(written), x.dtype) * tf.reduce_sum(tf.abs(x))


def _exact_statistics(layer: Any, weight: Any) -> Any:
    """The mean or variance that a Normalization layer was given, which Keras keeps as float32."""
    given = {id(layer.mean): layer.input_mean, id(layer.variance): layer.input_variance}.get(id(weight))
    if given is None or layer.compute_dtype != "float64":
        return _converted(layer, weight)
    kept = np.broadcast_to(np.asarray(given, np.float64), layer._mean_and_var_shape)
    if not np.array_equal(kept, kept.astype(np.float32)):
        _note("the mean and variance of Normalization")
    return tf.constant(kept.reshape(layer._broadcast_shape))


def _exact_moments(layer: Any, inputs: Any, mask: Any) -> Any:
    """The mean and variance of a batch norm's inputs (..., channels); to the number of those that a mask keeps Keras adds 1e-7."""
    if mask is None or layer.compute_dtype != "float64":
        return _moments(layer, inputs, mask)
    _note(f"the {keras.config.epsilon():g} that is added to a masked batch norm's count")
    kept = tf.cast(tf.broadcast_to(tf.cast(mask, tf.bool)[..., None], tf.shape(inputs)), inputs.dtype)
    axes = layer._reduction_axes
    count = tf.maximum(tf.reduce_sum(kept, axes, keepdims=True), 1)
    mean = tf.reduce_sum(tf.where(kept > 0, inputs, 0), axes, keepdims=True) / count
    squares = tf.reduce_sum(tf.where(kept > 0, tf.square(inputs - mean), 0), axes, keepdims=True)
    return tf.squeeze(mean, axes), tf.squeeze(squares / count, axes)


EXACT.replacements = (
    (keras.layers.BatchNormalization, "_moments", _exact_moments),
    (keras.layers.Normalization, "convert_weight", _exact_statistics),
    (keras.regularizers.L1, "__call__", _exact_l1),
    (tf, "cast", _exact_cast),
    # TensorFlow's own functions call it by this name.
    (math_ops, "cast", _exact_cast),
    (tf.nn, "leaky_relu", _exact_leaky_relu),
    (tf.image, "resize", _exact_resize),
    (backend.nn, "ctc_loss", _exact_keras_ctc),
    (tf.nn, "ctc_loss", _exact_ctc),
    (tf.compat.v1.nn, "ctc_loss", _exact_old_ctc),
    (tf.image, "rgb_to_grayscale", _exact_grayscale),
    (tf.image, "per_image_standardization", _exact_standardization),
)
