"""Trained models in TensorFlow: loaded to be called, and made of stock layers."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import keras
import numpy as np
import tensorflow as tf

from parity.common.base.errors import ParityError
from parity.common.checkpoint.weights import Weights
from parity.common.execution.pass_context import Context
from parity.common.spec.layers import Dense
from parity.tf_impl import convert, losses
from parity.tf_impl.inference import load
from parity.tf_impl.stock import model as stock_layers
from parity_tests.peers import Arrays


def evaluate(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """Outputs of a run's model, and what the loss makes of them."""
    before = keras.config.floatx()
    model = load(facts["path"])
    assert isinstance(model, keras.Model) and keras.config.floatx() == before
    inputs, targets = tf.constant(arrays["inputs"]), tf.constant(arrays["targets"])
    outputs = model(inputs)
    pad = model.spec.model.pad_id
    context = Context(False, token_mask=None if pad is None else inputs != pad)
    total, count = losses.loss_sum_and_count(model.spec.loss, outputs, targets, context)
    correct = losses.correct(model.spec.loss, outputs, targets, context)
    found = {"outputs": outputs, "sum": total, "count": count, "correct": correct}
    if facts.get("predict"):
        found["predicted"] = model.predict(inputs, verbose=0)
    return {name: np.asarray(value) for name, value in found.items()} | {"step": np.array(model.step)}


def refusal(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """The bytes of the error that loading, or saving what was loaded, ends with; none where neither does."""
    try:
        model = load(facts["path"])
        if "save" in facts:
            getattr(model, facts["save"])(f"{facts['path']}.keras")
    except ParityError as error:
        return {"said": np.frombuffer(str(error).encode(), np.uint8)}
    return {}


def stock(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """What exporting a run says, and how far what plain Keras loads is from ours.

    facts: path of a run; out; spoil: a number added to the first weights of the stock model; mistaken: whether
    the builder of dense layers raises a TypeError.
    """
    path, out = Path(facts["path"]), Path(facts["out"])
    made, found = convert.stock_model, {}

    def spoiled(weights: Weights) -> keras.Model:
        model = made(weights)
        first = model.trainable_weights[0]
        first.assign(first + facts["spoil"])
        return model

    with warnings.catch_warnings():
        # Of h5py, while Keras reads its own file.
        warnings.simplefilter("ignore", DeprecationWarning)
        if "spoil" in facts:
            convert.stock_model = spoiled
        mistakes = {Dense: _mistaken} if facts.get("mistaken") else {}
        try:
            with patch.dict(stock_layers._BUILDERS, mistakes):
                said = convert.export(path, "keras", out)["said"]
            ours, theirs = (
                np.asarray(model(arrays["inputs"])) for model in (load(path), keras.models.load_model(out))
            )
            found["deviation"] = np.abs(ours - theirs).max() / np.abs(ours).max()
        except ParityError as error:
            said = str(error)
        finally:
            convert.stock_model = made
    return found | {"said": np.frombuffer(said.encode(), np.uint8)}


def _mistaken(*given: Any) -> Any:
    raise TypeError("a builder's own")
