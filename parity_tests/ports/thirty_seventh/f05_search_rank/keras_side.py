"""Ranking the offers of a search: cross layers, attention among the offers of the page, RankNet loss."""

import keras
from keras import layers, ops


class Cross(layers.Layer):
    """DCN-v2: x0 * (W x + b) + x"""

    def build(self, shape):
        self.dense = layers.Dense(shape[0][-1], name="dense")
        self.dense.build(shape[0])

    def call(self, inputs):
        x0, x = inputs
        return x0 * self.dense(x) + x


def build():
    query = keras.Input((6,), name="query")
    docs = keras.Input((8, 5), name="docs")
    present = keras.Input((8,), name="present")
    x0 = layers.Concatenate(name="features")([docs, layers.RepeatVector(8)(query)])
    x = x0
    for i in range(2):
        x = Cross(name=f"cross{i}")([x0, x])
    h = layers.Dense(12, name="project")(x)
    mask = layers.Lambda(lambda m: (m > 0.5)[:, None, :], name="mask")(present)
    a = layers.MultiHeadAttention(3, 4, name="among")(h, h, attention_mask=mask)
    h = layers.LayerNormalization(epsilon=1e-5, name="norm")(layers.Add()([h, a]))
    h = layers.Dense(16, activation="elu", name="hidden")(h)
    scores = layers.Flatten(name="scores")(layers.Dense(1, name="score")(h))
    return keras.Model([query, docs, present], scores)


def ranknet(y, scores):
    """Mean over all pairs (i, j) of the batch with y_i > y_j; y = -1 marks padding."""
    y = ops.cast(y, scores.dtype)
    gap = scores[:, :, None] - scores[:, None, :]
    better = ops.logical_and(y[:, :, None] > y[:, None, :], y[:, None, :] >= 0)
    w = ops.cast(better, scores.dtype)
    return ops.sum(w * ops.softplus(-gap)) / ops.maximum(ops.sum(w), 1.0)
