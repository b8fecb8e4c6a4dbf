"""A user's model in a precision: built in it, or converted where it has fixed its own."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.ops import math_ops


def set_default(precision: str) -> None:
    """What Keras makes layers of, unless told otherwise."""
    keras.config.set_floatx(precision)
    keras.config.set_dtype_policy(precision)


def convert(model: keras.Layer, precision: str) -> None:
    """Have every floating layer, tensor and input of a model in a precision, whatever its code has fixed."""
    for layer in model._flatten_layers():
        if _other(layer.compute_dtype, precision) or _other(layer.variable_dtype, precision):
            layer.dtype_policy = keras.DTypePolicy(precision)
        # The inputs of a functional model, as it was made.
        for tensor in getattr(layer, "_inputs", None) or ():
            if _other(tensor.dtype, precision):
                tensor._dtype = precision
    for variable in model.weights:
        if _other(variable.dtype, precision):
            _widen(variable, precision)


def _other(dtype: Any, precision: str) -> bool:
    return str(dtype).startswith(("float", "bfloat")) and str(dtype) != precision


def _widen(variable: Any, precision: str) -> None:
    """Give a Keras variable a store of another type, with the same numbers."""
    kept = variable._value
    variable._dtype = precision
    variable._value = tf.Variable(
        tf.cast(kept, precision), trainable=kept.trainable, name=variable.name, aggregation=kept.aggregation
    )


def exact_constants(on: bool) -> None:
    """Whether constants of float64 models are in float64 too.

    Stock TensorFlow takes Python's numbers through float32 where it casts them (GELU's constants, attention's
    scale, an optimizer's decays), and keeps the slope of LeakyReLU as one: errors of up to 6e-8 that no port has.
    For an experiment: what is gone with this came from there.
    """
    if on and not _STOCK:
        for owner, name, exact in _EXACT:
            _STOCK.append((owner, name, getattr(owner, name)))
            setattr(owner, name, exact)
    elif not on:
        while _STOCK:
            setattr(*_STOCK.pop())


# What has been replaced: owner, name, what was there.
_STOCK: list[tuple[Any, str, Any]] = []
_cast = tf.cast


def _exact_cast(x: Any, dtype: Any, name: str | None = None) -> Any:
    return _cast(np.float64(x) if type(x) is float else x, dtype, name)


def _exact_leaky_relu(features: Any, alpha: float = 0.2, name: str | None = None) -> Any:
    features = tf.convert_to_tensor(features)
    return tf.where(features > 0, features, tf.constant(alpha, features.dtype) * features, name)


_EXACT = (
    (tf, "cast", _exact_cast),
    # TensorFlow's own functions call it by this name.
    (math_ops, "cast", _exact_cast),
    (tf.nn, "leaky_relu", _exact_leaky_relu),
)
