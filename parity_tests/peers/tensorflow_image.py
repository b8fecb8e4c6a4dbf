"""Stock Keras layers, and our own as a training step runs them."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

# Sets the number of threads, which must come before TensorFlow's first operation.
import parity_tests.peers.tensorflow_layers  # noqa: F401
from parity.common.execution.pass_context import Context
from parity.common.spec import ModelSpec
from parity.tf_impl.layers import EmptySafe, build_layer
from parity.tf_impl.model import tensors_of
from parity_tests.peers import Arrays


def stock(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Output, gradients and statistics of one keras.layers class in float64.

    facts: layer (the class), arguments, tensors (names in the order of the layer's weights), training
    (None where the layer has no such argument), trainable.
    arrays: x, cotangent, and every tensor by name.
    """
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    layer = getattr(keras.layers, facts["layer"])(**facts["arguments"])
    layer.build((None, *arrays["x"].shape[1:]))
    layer.trainable = facts["trainable"]
    named = dict(zip(facts["tensors"], layer.weights, strict=True))
    for name, variable in named.items():
        variable.assign(arrays[name])
    x = tf.constant(arrays["x"])
    flags = {} if facts["training"] is None else {"training": facts["training"]}
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, **flags)
        total = tf.reduce_sum(y * tf.constant(arrays["cotangent"]))
    trained = {name: v.value for name, v in named.items() if v.trainable}
    dx, gradients = tape.gradient(total, (x, trained), unconnected_gradients="zero")
    results = {"y": y.numpy(), "dx": dx.numpy()}
    results |= {f"d{name}": gradient.numpy() for name, gradient in gradients.items()}
    return results | {name: v.numpy() for name, v in named.items() if not v.trainable}


def in_a_graph(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Output and gradients of a pass in a tf.function that knows no batch size, empty batches guarded.

    facts and arrays as `tensorflow_layers.forward_backward`, but the gradients are those of the output's sum.
    """
    model = ModelSpec.parse(facts["model"])
    keras.config.set_floatx(facts["precision"])
    keras.config.set_dtype_policy(facts["precision"])
    tree = model.tree()
    layer = build_layer(tree)
    for part in layer._flatten_layers():
        if isinstance(part, EmptySafe):
            part.guarded = True
    tensors = tensors_of(tree, layer)
    for name, variable in tensors.items():
        variable.assign(arrays[name])
    trained = {name: v for name, v in tensors.items() if name.startswith("parameters/")}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, *model.input_shape], facts["precision"]),
            tf.TensorSpec([None], tf.int64),
        ]
    )
    def run(x: tf.Tensor, ids: tf.Tensor) -> tuple:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, context=Context(facts["training"], facts["seed"], 0, ids))
            total = tf.reduce_sum(y)
        return y, tape.gradient(total, (x, trained), unconnected_gradients="zero")

    y, (dx, gradients) = run(tf.constant(arrays["x"]), tf.constant(arrays["sample_ids"]))
    results = {"y": y.numpy(), "dx": dx.numpy()}
    return results | {f"d{name}": gradient.numpy() for name, gradient in gradients.items()}
