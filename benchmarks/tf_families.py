"""Keras's stock models of sequences as a good engineer writes them, at a spec's initial values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import keras
import numpy as np

from benchmarks import models
from parity.common.spec import TrainSpec
from parity.common.state.canonical import initial_state


class _Positions(keras.layers.Layer):
    """x + the rows of a table."""

    def build(self, shape: Any) -> None:
        self.table = self.add_weight(shape=shape[1:], name="table")

    def call(self, x: Any) -> Any:
        return x + self.table


class _Tied(keras.layers.Layer):
    """The logits of an embedding's table."""

    def __init__(self, embedding: keras.layers.Embedding) -> None:
        super().__init__()
        self._embedding = embedding

    def call(self, x: Any) -> Any:
        return keras.ops.matmul(x, keras.ops.transpose(self._embedding.embeddings))


def _gpt(spec: TrainSpec) -> keras.Model:
    vocabulary, width, depth, heads = models.gpt_sizes(spec)
    inputs = keras.Input(spec.model.input_shape, dtype="int32")
    embedding = keras.layers.Embedding(vocabulary, width)
    x = _Positions()(embedding(inputs))
    for _ in range(depth):
        y = keras.layers.LayerNormalization(epsilon=1e-5)(x)
        attention = keras.layers.MultiHeadAttention(heads, width // heads)
        x = x + attention(y, y, use_causal_mask=True)
        y = keras.layers.LayerNormalization(epsilon=1e-5)(x)
        y = keras.layers.Dense(4 * width, activation=partial(keras.activations.gelu, approximate=True))(y)
        x = x + keras.layers.Dense(width)(y)
    x = keras.layers.LayerNormalization(epsilon=1e-5)(x)
    return keras.Model(inputs, _Tied(embedding)(x))


def _recurrent(kind: type[keras.layers.Layer], spec: TrainSpec) -> keras.Model:
    embedding, first, second, head = spec.model.layers
    inputs = keras.Input(spec.model.input_shape, dtype="int32")
    x = keras.layers.Embedding(embedding.vocabulary, embedding.features)(inputs)
    x = kind(first.units, return_sequences=True)(x)
    x = kind(second.units)(x)
    return keras.Model(inputs, keras.layers.Dense(head.units)(x))


FAMILIES: Mapping[str, Callable[[TrainSpec], keras.Model]] = {
    "gpt": _gpt,
    "lstm": partial(_recurrent, keras.layers.LSTM),
    "gru": partial(_recurrent, keras.layers.GRU),
}


def family(spec: TrainSpec) -> keras.Model:
    """The stock model of a spec of that name; both have their tensors in one order, Keras's some in other shapes."""
    model = FAMILIES[spec.name](spec)
    state = initial_state(spec)
    values: list[np.ndarray] = []
    for name, value in state.items():
        if not name.startswith("parameters/"):
            continue
        if name.endswith("/recurrent_bias"):
            values[-1] = np.stack([values[-1], value])
        else:
            values.append(value)
    for variable, value in zip(model.trainable_variables, values, strict=True):
        variable.assign(np.reshape(value, variable.shape))
    return model
