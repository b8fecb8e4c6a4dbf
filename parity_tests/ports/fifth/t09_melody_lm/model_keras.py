"""Next note of a melody: a small decoder with rotary positions and grouped key-value heads."""

import keras
import numpy as np
from keras import layers, ops

NOTES, LENGTH, DIM, HEADS, GROUPS, HEAD, DEPTH = 40, 24, 32, 4, 2, 8, 2


class RootMeanSquare(layers.Layer):
    def build(self, input_shape):
        self.gain = self.add_weight(shape=(input_shape[-1],), initializer="ones", name="gain")

    def call(self, x):
        return self.gain * x / ops.sqrt(ops.mean(ops.square(x), axis=-1, keepdims=True) + 1e-6)


class RotaryAttention(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.query = layers.Dense(HEADS * HEAD, use_bias=False, name="query")
        self.key = layers.Dense(GROUPS * HEAD, use_bias=False, name="key")
        self.value = layers.Dense(GROUPS * HEAD, use_bias=False, name="value")
        self.output_projection = layers.Dense(DIM, use_bias=False, name="output")
        angle = np.arange(LENGTH)[:, None] * 100.0 ** (-np.arange(0, HEAD, 2) / HEAD)
        self.cos, self.sin = np.cos(angle)[:, None], np.sin(angle)[:, None]

    def rotate(self, x):
        a, b = ops.split(x, 2, axis=-1)
        cos, sin = ops.convert_to_tensor(self.cos, x.dtype), ops.convert_to_tensor(self.sin, x.dtype)
        return ops.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    def call(self, x):
        q = self.rotate(ops.reshape(self.query(x), (-1, LENGTH, HEADS, HEAD)))
        k = self.rotate(ops.reshape(self.key(x), (-1, LENGTH, GROUPS, HEAD)))
        v = ops.reshape(self.value(x), (-1, LENGTH, GROUPS, HEAD))
        k, v = ops.repeat(k, HEADS // GROUPS, axis=2), ops.repeat(v, HEADS // GROUPS, axis=2)
        score = ops.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(HEAD)
        future = ops.triu(ops.ones((LENGTH, LENGTH), dtype="bool"), k=1)
        score = ops.where(future, ops.cast(-1e9, score.dtype), score)
        y = ops.einsum("bhqk,bkhd->bqhd", ops.softmax(score, axis=-1), v)
        return self.output_projection(ops.reshape(y, (-1, LENGTH, HEADS * HEAD)))


class GatedUnit(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.gate = layers.Dense(56, activation="silu", use_bias=False, name="gate")
        self.up = layers.Dense(56, use_bias=False, name="up")
        self.down = layers.Dense(DIM, use_bias=False, name="down")

    def call(self, x):
        return self.down(self.gate(x) * self.up(x))


def build():
    notes = keras.Input((LENGTH,), dtype="int32", name="notes")
    table = layers.Embedding(NOTES, DIM, name="table")
    x = layers.Dropout(0.1)(table(notes))
    for i in range(DEPTH):
        y = RotaryAttention(name=f"attention_{i}")(RootMeanSquare(name=f"before_attention_{i}")(x))
        x = x + layers.Dropout(0.1)(y)
        y = GatedUnit(name=f"feed_{i}")(RootMeanSquare(name=f"before_feed_{i}")(x))
        x = x + layers.Dropout(0.1)(y)
    x = RootMeanSquare(name="last")(x)
    logits = layers.Lambda(lambda t: ops.matmul(t, ops.transpose(table.embeddings)), name="tied")(x)
    return keras.Model(notes, 12 * ops.tanh(logits / 12), name="melody")


def loss(y_true, y_pred):
    """Mean over the notes that there are (0 is no note), with a small pull on the partition function."""
    there = ops.cast(y_true > 0, y_pred.dtype)
    total = ops.logsumexp(y_pred, axis=-1)
    right = ops.take_along_axis(y_pred, ops.cast(y_true, "int32")[..., None], axis=-1)[..., 0]
    each = total - right + 2**-9 * ops.square(total)
    return ops.sum(each * there) / ops.maximum(ops.sum(there), 1)
