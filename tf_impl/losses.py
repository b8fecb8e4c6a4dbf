"""Losses as (sum, count): the step divides once, globally. Formulas as in `common/reference/losses.py`."""

from __future__ import annotations

import tensorflow as tf

from parity.common.execution.pass_context import Context
from parity.common.spec import losses as spec
from parity.common.spec.imported_loss import ImportedLoss
from parity.common.spec.losses import LossBase


def loss_sum_and_count(
    loss: LossBase,
    outputs: tf.Tensor,
    targets: tf.Tensor,
    context: Context,
    sample_weights: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Sum of the losses of all that counts, and their number, both scalars of the outputs' type.

    Args:
        loss: which loss.
        outputs: (batch, ...) of the model.
        targets: (batch, *loss.target_shape), int64 classes or numbers.
        context: gives the token mask and what the layers add to the sum.
        sample_weights: (batch,), factors of each sample's part of the sum; the count is as if all were 1, as in Keras.
    """
    if isinstance(loss, ImportedLoss):
        total, count = tf.unstack(tf.reduce_sum(outputs, 0))
    elif isinstance(loss, spec.SoftmaxCrossEntropy):
        losses, count = _cross_entropy(loss, outputs, targets, context)
        total = tf.reduce_sum(_weighted(losses, sample_weights))
    elif isinstance(loss, spec.KLDivergence):
        total = tf.reduce_sum(_weighted(_divergence(loss, outputs, targets), sample_weights))
        count = tf.cast(tf.size(targets[..., 0]), total.dtype)
    else:
        total = tf.reduce_sum(_weighted(_elementwise(loss, outputs, targets), sample_weights))
        count = tf.cast(tf.size(targets), total.dtype)
    for penalty in context.penalties:
        total = total + penalty
    return total, count


def correct(loss: LossBase, outputs: tf.Tensor, targets: tf.Tensor, context: Context) -> tf.Tensor:
    """How many of the counted classes are right, a scalar; 0 where there are no classes."""
    if not loss.classes:
        return tf.zeros([], outputs.dtype)
    if loss.targets == "distributions":
        targets = tf.argmax(targets, -1)
    right = tf.cast(tf.argmax(outputs, -1) == targets, outputs.dtype)
    return tf.reduce_sum(right * _counted(loss, outputs, targets, context))


def _counted(
    loss: spec.SoftmaxCrossEntropy, outputs: tf.Tensor, targets: tf.Tensor, context: Context
) -> tf.Tensor:
    """1 for each class target that counts, else 0, in the outputs' type; shape of the class targets."""
    counted = tf.ones(tf.shape(outputs)[:-1], tf.bool)
    if loss.ignore is not None:
        counted = counted & (targets != loss.ignore)
    if loss.mask_padding:
        counted = counted & context.token_mask
    return tf.cast(counted, outputs.dtype)


def _cross_entropy(
    loss: spec.SoftmaxCrossEntropy, outputs: tf.Tensor, targets: tf.Tensor, context: Context
) -> tuple[tf.Tensor, tf.Tensor]:
    weights = _counted(loss, outputs, targets, context)
    if loss.targets == "classes":
        # An ignored target may be no class at all.
        targets = tf.clip_by_value(targets, 0, outputs.shape[-1] - 1)
    smoothing = loss.label_smoothing
    if loss.targets == "distributions":
        smooth = (1 - smoothing) * targets + smoothing / targets.shape[-1]
        losses = -tf.reduce_sum(smooth * _log_probabilities(loss, outputs), -1)
    elif loss.outputs == "logits" and not smoothing:
        # One kernel; the gradient of a gather alone is thirty.
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, outputs)
    else:
        log_p = _log_probabilities(loss, outputs)
        losses = -tf.gather(log_p, targets, batch_dims=targets.shape.rank)
        if smoothing:
            losses = (1 - smoothing) * losses - smoothing * tf.reduce_mean(log_p, -1)
    count = tf.reduce_sum(weights)
    if loss.class_weights is not None:
        weights = weights * tf.gather(tf.constant(loss.class_weights, outputs.dtype), targets)
        if loss.class_weight_mean == "weights":
            count = tf.reduce_sum(weights)
    return weights * losses, count


def _weighted(losses: tf.Tensor, weights: tf.Tensor | None) -> tf.Tensor:
    """Losses (batch, ...) times weights (batch,)."""
    if weights is None:
        return losses
    return losses * tf.reshape(weights, [-1] + [1] * (losses.shape.rank - 1))


def _log_probabilities(loss: spec.SoftmaxCrossEntropy, outputs: tf.Tensor) -> tf.Tensor:
    if loss.outputs == "logits":
        return tf.nn.log_softmax(outputs)
    if not loss.clip:
        return tf.math.log(outputs)
    if loss.targets == "classes":
        return tf.math.log(_normalised(tf.clip_by_value(outputs, loss.clip, 1 - loss.clip)))
    return tf.math.log(tf.clip_by_value(_normalised(outputs), loss.clip, 1 - loss.clip))


def _normalised(p: tf.Tensor) -> tf.Tensor:
    return p / tf.reduce_sum(p, -1, keepdims=True)


def _elementwise(loss: LossBase, outputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    error = outputs - targets
    if isinstance(loss, spec.MeanSquaredError):
        return tf.square(error)
    if isinstance(loss, spec.MeanAbsoluteError):
        return tf.abs(error)
    if isinstance(loss, spec.Huber):
        size = tf.abs(error)
        return tf.where(size <= loss.delta, 0.5 * tf.square(error), loss.delta * size - 0.5 * loss.delta**2)
    assert isinstance(loss, spec.BinaryCrossEntropy)
    targets = (1 - loss.label_smoothing) * targets + loss.label_smoothing / 2
    if loss.outputs == "logits":
        yes, no = tf.math.log_sigmoid(outputs), tf.math.log_sigmoid(-outputs)
    else:
        p = tf.clip_by_value(outputs, loss.clip, 1 - loss.clip) if loss.clip else outputs
        yes, no = tf.math.log(p), tf.math.log(1 - p)
        if loss.log_floor is not None:
            yes, no = (tf.maximum(x, loss.log_floor) for x in (yes, no))
    return -(loss.positive_weight * targets * yes + (1 - targets) * no)


def _divergence(loss: spec.KLDivergence, outputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    if loss.outputs == "logits":
        log_p = tf.nn.log_softmax(outputs)
    elif loss.outputs == "log_probabilities":
        log_p = outputs
    else:
        if loss.clip:
            targets, outputs = (tf.clip_by_value(x, loss.clip, 1.0) for x in (targets, outputs))
        log_p = tf.math.log(outputs)
    return tf.math.xlogy(targets, targets) - targets * log_p
