"""Float64 where a user's code asks for float32, or TensorFlow takes that by itself: so a comparison in float64 is one.

A mask that is cast to float32 would meet float64 activations, which TensorFlow refuses; in a float32 model the cast does nothing.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from parity.common.external.process.exact import ExactFunctions

WIDE = ExactFunctions()
_FLOAT32 = tf.float32
# They know which of their numbers are float32. AutoGraph makes the calls of code that it has converted, which is a user's.
_FRAMEWORKS, _AUTOGRAPH = ("keras.src.", "tf_keras.", "tensorflow."), "tensorflow.python.autograph."


def wide(dtype: Any, caller: FrameType) -> Any:
    """Return the type that a caller asks for, float64 for a user's float32; None stays None."""
    try:
        is_float32 = dtype is not None and tf.as_dtype(dtype) == _FLOAT32
    except TypeError:
        return dtype
    return tf.float64 if is_float32 and WIDE.on and _is_users(caller) else dtype


def _is_users(caller: FrameType) -> bool:
    name = caller.f_globals.get("__name__", "")
    return name.startswith(_AUTOGRAPH) or not name.startswith(_FRAMEWORKS)


def _widened(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is asked for a type, or makes float32 tensors of plain numbers."""
    signature = inspect.signature(function)
    default = signature.parameters["dtype"].default if "dtype" in signature.parameters else None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1)
        if not _is_users(caller):
            return function(*args, **kwargs)
        given = signature.bind(*args, **kwargs)
        dtype = given.arguments.get("dtype", default)
        if dtype is not None:
            given.arguments["dtype"] = wide(dtype, caller)
        elif function.__module__.startswith("tensorflow."):  # Keras takes its own default type
            given.arguments.update({name: _as_float64(value) for name, value in given.arguments.items()})
        return function(*given.args, **given.kwargs)

    return call


def _as_float64(value: Any) -> Any:
    """Numbers of Python's and NumPy's, also in lists, as float64 where they are floats; whatever else as it is."""
    if not _is_plain(value):
        return value
    array = np.asarray(value)
    return array.astype(np.float64) if array.size and array.dtype in (np.float32, np.float64) else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value)) and len({np.shape(each) for each in value}) < 2
    return isinstance(value, float | int | np.generic | np.ndarray)


_stock_one_hot = tf.one_hot


def _one_hot(indices: Any, depth: Any, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """Of float64 where no type is asked for, and no values that would have one."""
    caller = sys._getframe(1)
    plain = dtype is None and not args and not {"on_value", "off_value"} & kwargs.keys() and _is_users(caller)
    dtype = tf.float64 if plain else wide(dtype, caller)
    return _stock_one_hot(indices, depth, *args, dtype=dtype, **kwargs)


_FUNCTIONS = (
    *("zeros", "ones", "eye", "cast", "zeros_like", "ones_like", "sequence_mask"),
    *("random.normal", "random.uniform", "random.truncated_normal"),
    *(
        "constant",
        "convert_to_tensor",
        "fill",
        "range",
        "linspace",
        "sqrt",
        "exp",
        "pow",
        "math.rsqrt",
        "math.log",
    ),
)


def _replacements() -> list[tuple[Any, str, Any]]:
    found: list[tuple[Any, str, Any]] = [(module, "float32", tf.float64) for module in (tf, tf.dtypes)]
    for name in _FUNCTIONS:
        module, _, attribute = name.rpartition(".")
        stock = getattr(getattr(tf, module) if module else tf, attribute)
        new = _widened(stock)
        owners = (tf, tf.math, tf.random, tf.linalg, tf.dtypes)
        found += [(owner, attribute, new) for owner in owners if getattr(owner, attribute, None) is stock]
    found.append((tf, "one_hot", _one_hot))
    for name, function in inspect.getmembers(keras.ops, inspect.isfunction):
        if "dtype" in inspect.signature(function).parameters:
            found.append((keras.ops, name, _widened(function)))
    return found


WIDE.replacements = _replacements()
