"""Keras models of the zoo under an experiment; imported only in TensorFlow's process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import keras_hub


def hub_widened(name: str, **arguments: Any) -> keras.Model:
    """A class of keras_hub.models, with float64 wherever the package's own code asks for float32.

    An experiment that changes this process for good: what it takes away was due to that.
    """
    keras.ops.cast = _widened(keras.ops.cast)
    keras.ops.arange = _widened(keras.ops.arange)
    model: keras.Model = getattr(keras_hub.models, name)(**arguments)
    return model


def _widened(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        wide = ["float64" if value == "float32" else value for value in arguments if isinstance(value, str)]
        rest = [value for value in arguments if not isinstance(value, str)]
        if named.get("dtype") == "float32":
            named["dtype"] = "float64"
        return function(*rest, *wide, **named)

    return call
