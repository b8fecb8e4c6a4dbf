"""Named arrays handed to a user's model, and its tensors as arrays."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.calling import arrange, called
from parity.common.external.process.pass_result import Array, Arrays
from parity.common.spec.imported_loss import ALONE
from parity.tf_impl.private_names import masked_as


def call(model: keras.Layer, inputs: Array | Arrays, training: bool | None = None) -> Any:
    """Return what the model gives for some inputs, as it gives it.

    Args:
        inputs: one array (batch, ...), or arrays by name; `process.calling.arrange` says how they are handed over, and for a functional
        model the structure that it was made with.
        training: the mode; None: as the model has it.

    Raises:
        ExternalModelError: the model does not take such inputs. What its own code raises comes as it is.
    """
    named = inputs if isinstance(inputs, dict) else {ALONE: inputs}
    return call_with(model, {name: tensor_of(array) for name, array in named.items()}, training)


def call_with(model: keras.Layer, tensors: dict[str, Any], training: bool | None = None) -> Any:
    """Return what the model gives for tensors (batch, ...) by name; arguments and errors as of `call`."""
    if isinstance(model, keras.Model) and getattr(model, "_inputs_struct", None) is not None:
        return model(_structured(model, tensors), training=training)
    args, kwargs = arrange(tensors, inspect.signature(model.call), "call")
    if kwargs and not args:
        # Keras wants its first argument without a name.
        first = next(iter(inspect.signature(model.call).parameters))
        args = [kwargs.pop(first)] if first in kwargs else []
    return called(partial(model, **kwargs, training=training), args)


def _structured(model: keras.Model, inputs: dict[str, Any]) -> Any:
    """Inputs in the nesting that a functional model was made with."""
    struct = model._inputs_struct
    if isinstance(struct, dict) and set(struct) == set(inputs):
        return {key: inputs[key] for key in struct}
    names = [tensor.name for tensor in model.inputs]
    if set(names) == set(inputs):
        values = [inputs[name] for name in names]
    elif len(names) == len(inputs) and (len(names) == 1 or not set(names) & set(inputs)):
        values = list(inputs.values())
    else:
        own = list(struct if isinstance(struct, dict) else names)
        hint = f"; leave the others out, as --inputs {','.join(own)} does" if set(own) < set(inputs) else ""
        # An output of the user's that no loss was named for is taken for an input.
        given = getattr(model, "_outputs_struct", None)
        outputs = [
            name for name in inputs if name in (given if isinstance(given, dict) else model.output_names)
        ]
        if hint and outputs:
            also = f"; {outputs[0]} is an output of the model: give it a loss, as --loss {outputs[0]}=mse does, or where one loss takes all"
            hint = f"{also} --targets {','.join(outputs)}; or{hint[1:]}"
        raise ExternalModelError(
            f"the model's inputs are {', '.join(own)}, received {', '.join(inputs)}{hint}"
        )
    return keras.tree.pack_sequence_as(struct, values)


def tensor_of(array: Array) -> tf.Tensor:
    """Floating numbers in the process's precision; integers and booleans as they are."""
    array = np.asarray(array)
    return tf.constant(array, keras.config.floatx() if array.dtype.kind == "f" else None)


def array_of(tensor: Any) -> Array:
    """A copy of a tensor's or variable's values; bfloat16 as float32, which holds the same numbers; complex ones
    with the real and the imaginary part as the last axis."""
    if isinstance(tensor, tf.IndexedSlices):
        tensor = tf.convert_to_tensor(tensor)
    array = np.array(tensor.numpy())
    if str(array.dtype) == "bfloat16":
        array = array.astype(np.float32)
    return np.stack([array.real, array.imag], -1) if array.dtype.kind == "c" else array


def as_given_to_loss(output: tf.Tensor) -> tf.Tensor:
    """An output as a tensor of its own, to which nothing but the loss sends a gradient back."""
    return masked_as(output, tf.identity(output))


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor that holds numbers: none of a graph, none of Keras's symbols."""
    return isinstance(value, tf.Tensor) and not tf.is_symbolic_tensor(value)
