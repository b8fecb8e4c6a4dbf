"""A trained model to be called: loaded from a run or a checkpoint of either framework, without the trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from parity.common.base.errors import CheckpointError
from parity.common.checkpoint.weights import Weights, read_weights
from parity.common.spec import Placement
from parity.tf_impl.layers import EmptySafe
from parity.tf_impl.model import Model


class _InferenceModel(keras.Model):
    """outputs = model(inputs), as the run's evaluation computes them.

    Inputs are a batch of the spec's `input_shape`: images are (batch, height, width, channels), tokens
    (batch, tokens). There is no training mode: dropout drops nothing and batch norm keeps its statistics.

    spec: what was trained. step: how many steps of it.
    """

    def __init__(self, weights: Weights) -> None:
        # Its own policy would turn tokens that are given as floats into another type.
        super().__init__(name=weights.spec.name, autocast=False)
        self.spec, self.step = weights.spec, weights.step
        self._model = Model(weights.spec, Placement(framework="tensorflow", strategy="mirrored"))
        self.root = self._model.root
        for layer in self.root._flatten_layers():
            if isinstance(layer, EmptySafe):
                # Whoever calls may have an empty batch.
                layer.guarded = True
        for name, variable in self._model.tensors.items():
            variable.assign(weights.tensors[name])
        self.trainable = False

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Outputs (batch, ...) of inputs (batch, ...): numbers of any type, or integer tokens."""
        inputs = tf.cast(inputs, self.spec.input_dtype)
        ids = tf.range(tf.shape(inputs, tf.int64)[0])
        return self._model(inputs, self._model.context(False, inputs, ids))

    def save(self, *arguments: Any, **options: Any) -> None:
        """Refused: what Keras would write, it could not read."""
        raise CheckpointError(
            "this model is made of the toolkit's layers, which plain Keras cannot load;"
            " run: parity checkpoint export RUN --to keras --out FILE.keras"
        )

    save_weights = save


def load(path: Path | str) -> keras.Model:
    """The model of a run (its final state, else its latest whole checkpoint), or of one checkpoint.

    Raises:
        ParityError: in one line, what is missing or damaged.
    """
    return model_of(read_weights(Path(path)))


def model_of(weights: Weights) -> keras.Model:
    """The model with given weights."""
    # Keras's defaults, which building a model sets, are left to the caller as they were.
    kind, policy = keras.config.floatx(), keras.config.dtype_policy()
    try:
        return _InferenceModel(weights)
    finally:
        keras.config.set_floatx(kind)
        keras.config.set_dtype_policy(policy)
