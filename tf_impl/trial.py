"""Single layers, each on one batch by itself: what a diagnosis tries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from pydantic import TypeAdapter

from common.record.files import write_json
from common.spec.layers import AnyLayer
from common.state import State, load_state, save_state
from tf_impl.context import Context
from tf_impl.layers import build_layer
from tf_impl.layers.registry import call
from tf_impl.model import tensors_of

_LAYER: TypeAdapter[Any] = TypeAdapter(AnyLayer)


def run(folder: Path) -> None:
    """Try the layers that `trials.json` describes on the arrays of `trials.safetensors`.

    Of trial number I: `I/x`, `I/tensor/NAME` and maybe `I/ids`, `I/dy`, `I/token_mask`. Leaves
    `results.safetensors` with `I/y`, `I/after/buffers/...` and, where there is a dy, `I/dx` and
    `I/gradient/NAME`; and `errors.json`, {I: what it said}, of trials that failed.
    """
    described = json.loads((folder / "trials.json").read_text(encoding="utf-8"))
    given = load_state(folder / "trials.safetensors")
    results: State = {}
    errors: dict[str, str] = {}
    for number, facts in enumerate(described):
        head = f"{number}/"
        arrays = {n.removeprefix(head): array for n, array in given.items() if n.startswith(head)}
        try:
            found = _tried(facts, arrays)
        # Whatever is wrong with one, the others are tried.
        except Exception as error:
            errors[str(number)] = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
        else:
            results |= {f"{head}{name}": array for name, array in found.items()}
    save_state(folder / "results.safetensors", results)
    write_json(folder / "errors.json", errors)


def _tried(facts: dict[str, Any], arrays: State) -> State:
    """One layer's output, and what a backward pass gives."""
    dtype = facts["dtype"]
    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)
    node = _LAYER.validate_python(facts["spec"]).node(facts["path"], tuple(facts["input_shape"]))
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
