"""Single layers, each on one batch by itself: what a diagnosis tries."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from parity.common.execution.pass_context import Context
from parity.common.spec import Node
from parity.common.state.canonical import State
from parity.tf_impl.layers import build_layer
from parity.tf_impl.layers.registry import call
from parity.tf_impl.model import tensors_of


def tried(node: Node, facts: dict[str, Any], arrays: State) -> State:
    """One layer's output, and what a backward pass gives (`common/record/trials.py`)."""
    dtype = facts["dtype"]
    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)
    layer = build_layer(node)
    tensors = tensors_of(node, layer)
    for name, variable in tensors.items():
        variable.assign(arrays[f"tensor/{name}"])
    x, dy, ids, mask = (_tensor(arrays, name, dtype) for name in ("x", "dy", "ids", "token_mask"))
    step = tf.constant(facts["step"], tf.int64)
    context = Context(facts["training"], facts["seed"], step, ids, mask)
    learned = {n: v for n, v in tensors.items() if n.startswith("parameters/")}
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = call(layer, x, context)
        total = tf.add_n([tf.reduce_sum(y * dy), *context.penalties]) if dy is not None else None
    found = {"y": y.numpy()}
    if total is not None:
        dx, gradients = tape.gradient(total, (x, learned), unconnected_gradients="zero")
        if x.dtype.is_floating:
            found["dx"] = dx.numpy()
        for name, gradient in gradients.items():
            # Of an embedding it is sparse.
            found[name.replace("parameters", "gradient", 1)] = tf.convert_to_tensor(gradient).numpy()
    for name in tensors.keys() - learned.keys():
        found[f"after/{name}"] = np.array(tensors[name].numpy())
    return found


def _tensor(arrays: State, name: str, dtype: str) -> tf.Tensor | None:
    """One of the arrays given, numbers in the trial's type."""
    if name not in arrays:
        return None
    tensor = tf.constant(arrays[name])
    return tf.cast(tensor, dtype) if tensor.dtype.is_floating else tensor
