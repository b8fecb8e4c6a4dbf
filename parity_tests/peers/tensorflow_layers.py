"""Forward and backward passes of a model, and random words, in TensorFlow."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from parity.common.execution.pass_context import Context
from parity.common.spec import ModelSpec
from parity.tf_impl.layers import build_layer
from parity.tf_impl.layers.random import _words_in_passes, sample_words
from parity.tf_impl.model import tensors_of
from parity_tests.peers import Arrays


def forward_backward(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Output, penalty, gradients and buffers of one pass.

    facts: model (resolved ModelSpec), training, seed, step, precision.
    arrays: x, sample_ids, cotangent (of the output), and every tensor by canonical name.
    """
    model = ModelSpec.parse(facts["model"])
    keras.config.set_floatx(facts["precision"])
    keras.config.set_dtype_policy(facts["precision"])
    tree = model.tree()
    layer = build_layer(tree)
    tensors = tensors_of(tree, layer)
    for name, variable in tensors.items():
        variable.assign(arrays[name])
    x = tf.constant(arrays["x"])
    mask = None if model.pad_id is None else x != model.pad_id
    trained = {name: v for name, v in tensors.items() if name.startswith("parameters/")}
    context = Context(
        facts["training"],
        facts["seed"],
        tf.constant(facts["step"], tf.int64),
        tf.constant(arrays["sample_ids"]),
        mask,
    )
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, context=context)
        penalty = tf.add_n([tf.zeros([], y.dtype), *context.penalties])
        total = tf.reduce_sum(y * tf.constant(arrays["cotangent"])) + penalty
    dx, gradients = tape.gradient(total, (x, trained), unconnected_gradients="zero")
    results = {"y": y.numpy(), "penalty": penalty.numpy()}
    if x.dtype.is_floating:
        results["dx"] = dx.numpy()
    for name, gradient in gradients.items():
        results[f"d{name}"] = np.array(tf.convert_to_tensor(gradient))
    for name in tensors.keys() - trained.keys():
        results[name] = np.array(tensors[name].numpy())
    return results


def words(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Keyed random words."""
    ids = tf.constant(arrays["sample_ids"])
    given = (tuple(facts["key"]), facts["step"], ids, facts["count"])
    words = sample_words(*given).numpy()
    # As on a GPU.
    assert (words == _words_in_passes(*given).numpy()).all()
    return {"words": words}
