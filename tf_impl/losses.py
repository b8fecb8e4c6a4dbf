"""Losses as (sum, count): the step divides once, globally."""

from __future__ import annotations

import tensorflow as tf

from common.spec.train import LossSpec


def loss_sum_and_count(loss: LossSpec, logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Sum of the samples' losses and their number, both scalars of the logits' type.

    Args:
        loss: which loss.
        logits: (batch, classes).
        labels: (batch,) int64.
    """
    assert loss.kind == "softmax_cross_entropy"
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    return tf.reduce_sum(losses), tf.cast(tf.size(labels), logits.dtype)
