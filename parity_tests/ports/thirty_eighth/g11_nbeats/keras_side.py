"""Monthly guest nights of hotels: N-BEATS, half a year from two."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BACK, AHEAD = 24, 6


def trend_basis(degree=3):
    t = np.arange(-BACK, AHEAD) / BACK
    b = np.stack([t**k for k in range(degree)]).astype(np.float32)
    return b[:, :BACK], b[:, BACK:]


def season_basis(harmonics=4):
    t = np.arange(-BACK, AHEAD) / 12.0
    b = np.concatenate(
        [[f(2 * np.pi * k * t)] for k in range(1, harmonics + 1) for f in (np.cos, np.sin)]
    ).astype("float32")
    return b[:, :BACK], b[:, BACK:]


class Block(layers.Layer):
    """Four dense layers, then the coefficients of a basis for the past and for the future."""

    def __init__(self, basis, width=24, **kw):
        super().__init__(**kw)
        self.back, self.ahead = (tf.constant(b) for b in basis)
        self.dense = [layers.Dense(width, activation="relu", name=f"fc{i}") for i in range(4)]
        self.theta = layers.Dense(2 * basis[0].shape[0], use_bias=False, name="theta")

    def build(self, shape):
        for d in self.dense:
            d.build(shape)
            shape = (*shape[:-1], d.units)
        self.theta.build(shape)

    def call(self, x):
        h = x
        for d in self.dense:
            h = d(h)
        past, future = ops.split(self.theta(h), 2, axis=-1)
        return ops.matmul(past, ops.cast(self.back, past.dtype)), ops.matmul(
            future, ops.cast(self.ahead, past.dtype)
        )


def smape(y_true, y_pred):
    size = ops.stop_gradient(ops.abs(y_pred)) + ops.abs(y_true)
    return ops.mean(200.0 * ops.abs(y_true - y_pred) / ops.maximum(size, 1e-3), axis=-1)


def build():
    keras.utils.set_random_seed(31)
    x = keras.Input((BACK,), name="x")
    level = layers.Lambda(lambda t: ops.max(ops.abs(t), axis=-1, keepdims=True), name="level")(x)
    rest = layers.Lambda(lambda a: a[0] / a[1], name="scaled")([x, level])
    parts = []
    for i, basis in enumerate([trend_basis(), trend_basis(), season_basis(), season_basis()]):
        back, ahead = Block(basis, name=f"block{i}")(rest)
        rest = layers.Subtract(name=f"rest{i}")([rest, back])
        parts.append(ahead)
    total = layers.Add(name="total")(parts)
    return keras.Model(x, layers.Multiply(name="forecast")([total, level]))
