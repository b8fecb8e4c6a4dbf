"""N-BEATS (interpretable, plus one generic block) for demand forecasting: 24 in, 8 out."""

import keras
import numpy as np
from keras import layers, ops

L, H = 24, 8


def trend_basis(degree):
    def grid(n):
        t = np.arange(n) / n
        return np.stack([t**p for p in range(degree + 1)])

    return grid(L), grid(H)


def fourier_basis(harmonics):
    def grid(n):
        t = np.arange(n) / n
        return np.stack(
            [np.cos(2 * np.pi * k * t) for k in range(1, harmonics + 1)]
            + [np.sin(2 * np.pi * k * t) for k in range(1, harmonics + 1)]
        )

    return grid(L), grid(H)


class Block(layers.Layer):
    def __init__(self, units, basis=None, theta=None, **kw):
        super().__init__(**kw)
        self.fc = [layers.Dense(units, activation="relu") for _ in range(3)]
        self.basis = basis
        if basis is not None:
            self.theta_b = layers.Dense(len(basis[0]), use_bias=False)
            self.theta_f = layers.Dense(len(basis[1]), use_bias=False)
        else:
            self.theta_b = layers.Dense(theta, use_bias=False)
            self.theta_f = layers.Dense(theta, use_bias=False)
            self.backcast = layers.Dense(L)
            self.forecast = layers.Dense(H)

    def call(self, x):
        for layer in self.fc:
            x = layer(x)
        tb, tf_ = self.theta_b(x), self.theta_f(x)
        if self.basis is None:
            return self.backcast(tb), self.forecast(tf_)
        return (
            ops.matmul(tb, ops.cast(self.basis[0], tb.dtype)),
            ops.matmul(tf_, ops.cast(self.basis[1], tf_.dtype)),
        )


class NBeats(keras.Model):
    def __init__(self, units=32):
        super().__init__()
        self.trend = Block(units, trend_basis(2), name="trend")
        self.season = Block(units, fourier_basis(3), name="season")
        self.generic = Block(units, theta=6, name="generic")

    def call(self, x):
        level = ops.max(ops.abs(x), axis=1, keepdims=True)
        residual = x / level
        forecast = 0.0
        # two blocks per interpretable stack, weights shared within the stack
        for block in (self.trend, self.trend, self.season, self.season, self.generic):
            back, fore = block(residual)
            residual = residual - back
            forecast = forecast + fore
        return forecast * level


def build():
    model = NBeats()
    model(ops.ones((8, L)))
    return model


def loss(y_true, y_pred):
    """sMAPE; the denominator is taken as constant, as in the paper's code."""
    y_true = ops.cast(y_true, y_pred.dtype)
    scale = ops.stop_gradient(ops.abs(y_true) + ops.abs(y_pred))
    return 2.0 * ops.mean(ops.abs(y_pred - y_true) / scale, axis=-1)
