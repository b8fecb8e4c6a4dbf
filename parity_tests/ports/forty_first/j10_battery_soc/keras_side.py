import math

import keras
import numpy as np
import tensorflow as tf
from keras import layers as L
from keras import ops

CENTRE = np.array([3.7, 1.5, 26.0], np.float32)
SPREAD = np.array([0.35, 2.2, 11.0], np.float32)
DELTA = 0.05
UNDER = 1.5


class Standardise(L.Layer):
    def call(self, x):
        return (x - tf.constant(CENTRE)) / tf.constant(SPREAD)


def build():
    sig = keras.Input((40, 3), name="sig")
    cell = keras.Input((2,), name="cell")
    x = Standardise(name="std")(sig)
    c1 = L.Conv1D(12, 5, padding="causal", strides=2, name="c1")(x)
    c1 = L.LayerNormalization(name="n1")(c1)
    c1 = L.Activation("gelu", name="a1")(c1)
    c2 = L.Conv1D(12, 3, padding="causal", dilation_rate=2, activation="elu", name="c2")(c1)
    s = L.Add(name="res")([c1, c2])
    h0 = L.Dense(16, activation="tanh", name="h0")(cell)
    s0 = L.Dense(16, name="s0")(cell)
    r = L.LSTM(16, return_sequences=True, name="lstm1")(s, initial_state=[h0, s0])
    r = L.Concatenate(name="skip")([r, s])
    last = L.LSTM(12, name="lstm2")(r)
    pooled = L.GlobalAveragePooling1D(name="gap")(c1)
    z = L.Concatenate(name="join")([last, pooled, cell])
    z = L.Dense(16, activation="silu", name="d1")(z)
    delta = L.Dense(1, name="d2")(z)
    # rough open-circuit guess from the last voltage
    ocv = L.Dense(1, name="ocv")(x[:, -1, :2])
    y = L.Activation("sigmoid", name="soc")(L.Add(name="sum")([ocv, delta]))
    return keras.Model({"sig": sig, "cell": cell}, y)


def loss(y_true, y_pred):
    """Pseudo-Huber, steeper where the estimate is too low; a value per sample."""
    e = y_pred - ops.cast(y_true, y_pred.dtype)
    h = DELTA**2 * (ops.sqrt(1 + ops.square(e / DELTA)) - 1)
    h = ops.where(e < 0, UNDER * h, h)
    return ops.mean(h, axis=-1) * (1.0 / DELTA) * math.sqrt(2)
