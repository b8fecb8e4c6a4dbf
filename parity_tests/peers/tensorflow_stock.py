"""Plain Keras trainings, written as its documentation writes them: no part of ours takes part."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers

from parity_tests.peers import Arrays


def cnn() -> keras.Model:
    """Convolution, batch norm, pooling, dense."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(8, 3, padding="same", activation="relu"),
            layers.BatchNormalization(momentum=np.float64(0.99), epsilon=np.float64(1e-3)),
            layers.Conv2D(8, 3, strides=2, padding="same"),
            layers.LeakyReLU(),
            layers.AveragePooling2D(2),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )


def mlp() -> keras.Model:
    """Flatten, dense, layer norm, dense."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Flatten(),
            layers.Dense(16, activation="tanh"),
            layers.LayerNormalization(),
            layers.Dense(10),
        ]
    )


def recurrent() -> keras.Model:
    """An image read row by row: LSTM, GRU, dense."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Reshape((8, 8)),
            layers.LSTM(12, return_sequences=True),
            layers.GRU(8),
            layers.Dense(10),
        ]
    )


def optimizer(facts: dict[str, Any]) -> keras.optimizers.Optimizer:
    """The stock class.

    Keras passes Python floats through float32 (0.9 becomes 0.89999998) on their way into a float64
    variable; NumPy's float64 it leaves alone. Observed with Keras 3.15.
    """
    options = {name: np.float64(v) if isinstance(v, float) else v for name, v in facts["options"].items()}
    stock: keras.optimizers.Optimizer = getattr(keras.optimizers, facts["optimizer"])(**options)
    return stock


def train(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """compile and fit on the batches in order; the weights afterwards, in Keras's order.

    facts: model, optimizer, options, batch_size.
    arrays: inputs and targets, one batch after the other, and weight_0, weight_1, ...
    """
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    model = {"cnn": cnn, "mlp": mlp, "recurrent": recurrent}[facts["model"]]()
    model.set_weights([arrays[f"weight_{i}"] for i in range(len(model.weights))])
    model.compile(
        optimizer=optimizer(facts), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    model.fit(
        arrays["inputs"],
        arrays["targets"],
        batch_size=facts["batch_size"],
        shuffle=False,
        epochs=1,
        verbose=0,
    )
    return {f"weight_{i}": np.array(weight) for i, weight in enumerate(model.get_weights())}
