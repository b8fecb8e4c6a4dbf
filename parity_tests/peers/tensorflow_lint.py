"""Outlines of the models of `external_models/lint_keras.py`."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from parity.common.base.package import numbers
from parity.tf_impl.external.outline import outline
from parity_tests.external_models import lint_keras
from parity_tests.peers import Arrays


def outlines(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """The JSON of the outline of each of facts["models"]: {model, arguments, optimizer, inputs: name of an array}."""
    found = {}
    for number, asked in enumerate(facts["models"]):
        keras.utils.set_random_seed(0)
        try:
            model = getattr(lint_keras, asked["model"])(**asked.get("arguments", {}))
        except (AttributeError, ValueError):
            if numbers(keras.__version__) >= (3, 12):
                raise
            # An older version has no such layer or function: nothing, not even a text.
            found[str(number)] = np.zeros(0, np.uint8)
            continue
        optimizer = asked.get("optimizer")
        made = None if optimizer is None else getattr(keras.optimizers, optimizer[0])(**optimizer[1])
        inputs = arrays.get(asked.get("inputs", ""))
        text = outline(model, asked["model"], inputs, made).model_dump_json()
        found[str(number)] = np.frombuffer(text.encode(), np.uint8)
    return found


def left_alone(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """What an outline must not change, each whether it is as before; of a pass that works and of one that fails."""
    del facts
    model = lint_keras.Odd()
    model(arrays["x"])
    before = [variable.numpy() for variable in model.weights]
    native = [
        keras.layers.Layer.__call__,
        keras.src.backend.nn.relu,
        keras.Variable.value,
        tf.nn.relu,
        tf.pad,
    ]
    outline(model, "odd", arrays["x"])
    failed = False
    try:
        outline(model, "odd", arrays["wrong"])
    except ValueError:
        failed = True
    now = [keras.layers.Layer.__call__, keras.src.backend.nn.relu, keras.Variable.value, tf.nn.relu, tf.pad]
    found = {
        "failed": failed,
        "functions": all(one is other for one, other in zip(now, native, strict=True)),
        "state": all(np.array_equal(a, b.numpy()) for a, b in zip(before, model.weights, strict=True)),
    }
    return {name: np.array(value) for name, value in found.items()}
