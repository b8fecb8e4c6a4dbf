"""Protein property prediction: residual dilated CNN, attention pooling, two heads."""

import keras
from keras import layers, ops

LENGTH, AMINO, WIDTH, PLACES = 48, 21, 20, 4


def residual(x, keep, dilation, name):
    h = layers.LayerNormalization(epsilon=1e-5, name=name + "_ln")(x)
    h = layers.Activation("relu")(h)
    h = layers.Conv1D(WIDTH, 5, dilation_rate=dilation, padding="same", name=name + "_conv")(h)
    h = layers.Activation("relu")(h)
    h = layers.Conv1D(WIDTH, 1, name=name + "_mix")(h)
    return (x + h) * keep


def build():
    ids = keras.Input((LENGTH,), dtype="int64", name="x")
    emb = layers.Embedding(AMINO, WIDTH, name="amino")(ids)
    keep = ops.expand_dims(ops.cast(ops.not_equal(ids, 0), emb.dtype), -1)
    h = emb * keep
    for i, d in enumerate((1, 2, 4)):
        h = residual(h, keep, d, f"res{i}")
    score = layers.Dense(1, use_bias=False, name="attention")(h)
    weight = ops.softmax(score - 1e9 * (1.0 - keep), axis=1)
    pooled = ops.sum(weight * h, axis=1)
    z = layers.Dense(16, activation="tanh", name="fc")(pooled)
    return keras.Model(
        ids,
        {"loc": layers.Dense(PLACES, name="loc")(z), "sol": layers.Dense(1, name="sol")(z)},
        name="protein",
    )
