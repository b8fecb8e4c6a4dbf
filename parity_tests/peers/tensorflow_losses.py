"""Losses in TensorFlow: ours, and those that Keras ships."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from parity.common.execution.pass_context import Context
from parity.common.spec.losses import LossBase, parse_loss
from parity.tf_impl.losses import correct, loss_sum_and_count
from parity_tests.peers import Arrays


def loss(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Sum, count, gradient of the sum, and the number of right classes."""
    spec: LossBase = parse_loss(facts["loss"])
    outputs, targets, mask = (tf.constant(arrays[n]) for n in ("outputs", "targets", "mask"))
    context = Context(True, token_mask=mask)
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        total, count = loss_sum_and_count(spec, outputs, targets, context)
    return {
        "sum": total.numpy(),
        "count": count.numpy(),
        "gradient": tf.convert_to_tensor(tape.gradient(total, outputs)).numpy(),
        "correct": correct(spec, outputs, targets, context).numpy(),
    }


def stock(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """The mean loss and its gradient by a class of keras.losses."""
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    outputs, targets = tf.constant(arrays["outputs"]), tf.constant(arrays["targets"])
    stock_loss = getattr(keras.losses, facts["name"])(**facts["options"])
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        mean = stock_loss(targets, outputs)
    return {"mean": mean.numpy(), "gradient": tf.convert_to_tensor(tape.gradient(mean, outputs)).numpy()}
