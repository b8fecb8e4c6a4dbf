"""Optimizer steps and learning rates in TensorFlow: ours, and those that Keras ships."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from unittest.mock import patch

import keras
import numpy as np
import tensorflow as tf
from keras.src.optimizers import nadam

from parity.common.reference import StepScalars
from parity.common.spec import Placement, TrainSpec
from parity.tf_impl import state
from parity.tf_impl.model import build_model
from parity.tf_impl.optimizers import build_optimizer
from parity.tf_impl.strategy import open_strategy
from parity_tests.peers import Arrays


def steps(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Weights after each step, the final state, and what an evaluation sees and leaves behind when it fails.

    facts: spec (resolved TrainSpec), steps. arrays: the initial state, and `N/<parameter>` gradients.
    """
    spec = TrainSpec.parse(facts["spec"])
    strategy = open_strategy(Placement(framework="tensorflow", strategy="mirrored"))
    model = build_model(spec, strategy)
    optimizer = build_optimizer(spec.optimizer, model, strategy)
    state.load(arrays, model, optimizer)
    rates, results = StepScalars(spec), {}
    for step in range(facts["steps"]):
        gradients = [tf.constant(arrays[f"{step}/{name}"]) for name in model.parameters]
        scalars = {name: tf.constant(v, spec.precision) for name, v in rates.scalars(step).items()}
        optimizer.update(optimizer.clip(gradients, tf.linalg.global_norm(gradients)), scalars)
        for name, weight in model.parameters.items():
            results[f"{step}/{name}"] = np.array(weight.numpy())
    results |= state.export(model, optimizer, facts["steps"])
    with suppress(InterruptedError), optimizer.averaged():
        for name, weight in model.parameters.items():
            results[f"evaluated/{name}"] = np.array(weight.numpy())
        raise InterruptedError("an evaluation that fails")
    for name, weight in model.parameters.items():
        results[f"left/{name}"] = np.array(weight.numpy())
    return results


def stock(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Weights after each step of a class of keras.optimizers; its default learning rate; averages.

    facts: name, options, rates (one a step), no_decay (names that do not decay).
    """
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    names = [name for name in arrays if name.startswith("parameters/")]
    variables = {name: keras.Variable(arrays[name], name=name.replace("/", "_")) for name in names}
    optimizer = getattr(keras.optimizers, facts["name"])(**facts["options"])
    results = {"learning_rate": keras.ops.convert_to_numpy(optimizer.learning_rate)}
    if facts.get("no_decay"):
        optimizer.exclude_from_weight_decay(var_list=[variables[name] for name in facts["no_decay"]])
    # tf.cast takes a Python float through float32, but not NumPy's.
    for name in optimizer.get_config():
        if isinstance(getattr(optimizer, name, None), float):
            setattr(optimizer, name, np.float64(getattr(optimizer, name)))
    cast = keras.ops.cast
    exact = lambda x, dtype: cast(np.float64(x) if isinstance(x, float) else x, dtype)  # noqa: E731
    optimizer.build(list(variables.values()))
    for step, rate in enumerate(facts["rates"]):
        optimizer.learning_rate = np.float64(rate)
        # Nadam casts a constant of its own.
        with patch.object(nadam.ops, "cast", exact):
            optimizer.apply([tf.constant(arrays[f"{step}/{name}"]) for name in names])
        for name, variable in variables.items():
            results[f"{step}/{name}"] = np.array(variable.numpy())
    if facts["options"].get("use_ema"):
        averages = zip(names, optimizer._model_variables_moving_average, strict=True)
        results |= {f"average/{name}": np.array(average.numpy()) for name, average in averages}
    return results


def schedule(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Learning rates of a class of keras.optimizers.schedules, or of ReduceLROnPlateau, by step."""
    del arrays
    keras.config.set_floatx("float64")
    if facts["name"] == "ReduceLROnPlateau":
        return {"rates": np.array(_plateau(facts))}
    # Python's floats would be computed with in float32.
    options = {name: _wide(value) for name, value in facts["options"].items()}
    made = getattr(keras.optimizers.schedules, facts["name"])(**options)
    return {"rates": np.array([float(made(step)) for step in range(facts["steps"])])}


def _wide(value: Any) -> Any:
    if isinstance(value, list):
        return [_wide(item) for item in value]
    return np.float64(value) if isinstance(value, float) else value


def _plateau(facts: dict[str, Any]) -> list[float]:
    """The rate of each epoch under a callback that is told each epoch's loss at its end."""
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(facts["rate"]), loss="mse")
    callback = keras.callbacks.ReduceLROnPlateau(monitor="loss", mode="min", **facts["options"])
    callback.set_model(model)
    callback.on_train_begin()
    rates = []
    for epoch, loss in enumerate(facts["losses"]):
        rates.append(float(keras.ops.convert_to_numpy(model.optimizer.learning_rate)))
        callback.on_epoch_end(epoch, {"loss": loss})
    return rates
