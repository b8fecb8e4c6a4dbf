"""Stock Keras training between exports; float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np

from parity.common.execution.processes.channel import Channel
from parity.common.execution.processes.service import answer_line
from parity.common.external.checkpoints import Conversions
from parity.tf_impl.external import names
from parity_tests.external_models import carry_keras
from parity_tests.peers import Arrays


def train(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Weights after training by Keras alone.

    facts: optimizer (name of a function of `carry_keras`); load, save (files or None). arrays: x (steps, batch,
    ...), y, and where there is no file to load, weights by name.
    """
    # A conversion in this process may have left that of its file.
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    if facts["load"] is not None and facts["load"].endswith(".keras"):
        model = keras.models.load_model(facts["load"])
    else:
        model = carry_keras.build()
        model.compile(optimizer=getattr(carry_keras, facts["optimizer"])(), loss="mse")
        model.optimizer.build(model.trainable_variables)
        if facts["load"] is not None:
            model.load_weights(facts["load"])
        for name, variable in names.tensors(model).items():
            if name in arrays:
                variable.assign(arrays[name])
    if model.optimizer is None or model.loss is None:
        optimizer = model.optimizer or getattr(carry_keras, facts["optimizer"])()
        model.compile(optimizer=optimizer, loss="mse")
    for x, y in zip(arrays["x"], arrays["y"], strict=True):
        model.train_on_batch(x, y)
    if facts["save"] is not None:
        model.save(facts["save"]) if facts["save"].endswith(".keras") else model.save_weights(facts["save"])
    return {name: np.array(variable) for name, variable in names.tensors(model).items()}


def lambda_model(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """A file that holds code: facts: save."""
    layers = [keras.Input((3,)), keras.layers.Lambda(lambda x: x + 1), keras.layers.Dense(2)]
    keras.Sequential(layers).save(facts["save"])
    return {}


def answer(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """What the child of `parity export` answers: facts: folder, line."""
    said = answer_line(Conversions("tensorflow"), Channel(Path(facts["folder"]), "child"), facts["line"])
    return {"answer": np.frombuffer(said.encode(), np.uint8)}
