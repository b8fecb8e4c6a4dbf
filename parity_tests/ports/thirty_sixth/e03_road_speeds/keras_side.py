"""Speeds on a small road network: diffusion along and against the traffic, then a GRU for each sensor."""

import keras
import numpy as np
from keras import layers, ops

STEPS, SENSORS, FEATURES, HORIZON = 8, 6, 2, 3
ROADS = np.array(
    [
        [0, 1, 0, 0, 0, 0.4],
        [0, 0, 1, 0, 0.5, 0],
        [0.3, 0, 0, 1, 0, 0],
        [0, 0, 0, 0, 1, 0.2],
        [0.6, 0, 0, 0, 0, 1],
        [1, 0, 0.7, 0, 0, 0],
    ]
)


def walk(a):
    return a / a.sum(1, keepdims=True)


class Diffusion(layers.Layer):
    """sum_k P_k x W_k + b with P of the identity, one and two hops forwards, and one backwards."""

    def __init__(self, units, **kw):
        super().__init__(**kw)
        self.units = units
        p, q = walk(ROADS), walk(ROADS.T)
        self.hops = np.stack([np.eye(SENSORS), p, p @ p, q])

    def build(self, shape):
        self.kernel = self.add_weight(name="kernel", shape=(len(self.hops), shape[-1], self.units))
        self.bias = self.add_weight(name="bias", shape=(self.units,), initializer="zeros")

    def call(self, x):
        hops = ops.cast(ops.convert_to_tensor(self.hops), x.dtype)
        return ops.tanh(ops.einsum("kij,btjf,kfu->btiu", hops, x, self.kernel) + self.bias)


def build():
    speeds = keras.Input((STEPS, SENSORS, FEATURES), name="speeds")
    x = Diffusion(8, name="diffusion1")(speeds)
    y = Diffusion(8, name="diffusion2")(x)
    x = layers.Add(name="residual")([x, y])
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(x)
    x = layers.Permute((2, 1, 3), name="sensors_first")(x)
    x = layers.TimeDistributed(layers.GRU(12, return_sequences=True, name="gru_cell1"), name="gru1")(x)
    x = layers.TimeDistributed(layers.GRU(10, name="gru_cell2"), name="gru2")(x)
    x = layers.Dense(HORIZON, name="horizon")(x)
    x = layers.Permute((2, 1), name="forecast")(x)
    last = layers.Lambda(lambda s: s[:, -1:, :, 0], name="last")(speeds)
    return keras.Model(speeds, layers.Add(name="change")([x, last]), name="roads")
