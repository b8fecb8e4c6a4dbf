"""Keras models of the zoo that plain arguments cannot name, or under an experiment; imported only in TensorFlow's process."""

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


def hub_towers(name: str, towers: dict[str, dict[str, Any]], **arguments: Any) -> keras.Model:
    """A class of keras_hub.models, unmodified, that takes models of that package.

    Args:
        name: of the class.
        towers: by argument, the class of a model ("name") and its arguments.
        arguments: of the class besides these.
    """
    built = {
        argument: getattr(keras_hub.models, tower["name"])(
            **{key: value for key, value in tower.items() if key != "name"}
        )
        for argument, tower in towers.items()
    }
    model: keras.Model = getattr(keras_hub.models, name)(**built, **arguments)
    return model


def _widened(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        wide = ["float64" if value == "float32" else value for value in arguments if isinstance(value, str)]
        rest = [value for value in arguments if not isinstance(value, str)]
        if named.get("dtype") == "float32":
            named["dtype"] = "float64"
        return function(*rest, *wide, **named)

    return call
