"""Keras's own sequence layers, with given weights."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from parity_tests.peers import Arrays


def stock(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Output and gradients of a layer of keras.layers in float64.

    facts: layer (its class), options, bidirectional (options of that wrapper, or None), call (further
        arguments of the call).
    arrays: x, cotangent, weight_0, ... in Keras's order, and where there are such, mask (batch, tokens),
        False at padding, memory, which attention attends to, kept_input and kept_state (gates or 1, batch,
        ...), which a recurrent cell takes for its dropout masks.
    """
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    layer = getattr(keras.layers, facts["layer"])(**facts["options"])
    if facts.get("bidirectional") is not None:
        layer = keras.layers.Bidirectional(layer, **facts["bidirectional"])
    x, call = tf.constant(arrays["x"]), dict(facts.get("call", {}))
    inputs = [x]
    if isinstance(layer, keras.layers.MultiHeadAttention | keras.layers.GroupQueryAttention):
        _keep_the_scale_exact(layer)
        inputs.append(tf.constant(arrays.get("memory", arrays["x"])))
        if "mask" in arrays:
            call["attention_mask"] = tf.constant(arrays["mask"])[:, None, :]
    elif "mask" in arrays:
        call["mask"] = tf.constant(arrays["mask"])
    if "kept_input" in arrays:
        _set_masks(layer.cell, arrays)
    layer(*inputs)
    layer.set_weights([arrays[f"weight_{i}"] for i in range(len(layer.weights))])
    weights = [weight.value for weight in layer.trainable_variables]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = layer(*inputs, **call)
        total = tf.reduce_sum(y * tf.constant(arrays["cotangent"]))
    d_inputs, d_weights = tape.gradient(total, (inputs, weights), unconnected_gradients="zero")
    results = {"y": y.numpy()}
    for name, gradient in zip(("dx", "dmemory"), d_inputs, strict=False):
        if x.dtype.is_floating:
            results[name] = gradient.numpy()
    for number, gradient in enumerate(d_weights):
        results[f"dweight_{number}"] = np.array(tf.convert_to_tensor(gradient))
    return results


def _set_masks(cell: Any, arrays: Arrays) -> None:
    """Dropout masks that are given, one where the cell wants one and as many as gates where it wants those."""
    for kind in ("input", "state"):
        masks = [tf.constant(mask) for mask in arrays[f"kept_{kind}"]]
        getter = "get_dropout_mask" if kind == "input" else "get_recurrent_dropout_mask"
        setattr(cell, getter, lambda x, masks=masks: masks if len(masks) > 1 else masks[0])


def _keep_the_scale_exact(layer: Any) -> None:
    """Keras passes the attention scale, a Python float, through float32."""
    for name in ("_inverse_sqrt_key_dim", "_inverse_sqrt_head_dim"):
        if hasattr(layer, name):
            setattr(layer, name, np.float64(getattr(layer, name)))
