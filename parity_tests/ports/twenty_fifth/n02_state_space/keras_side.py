"""Forecasting with a diagonal state space layer, stepped through time."""

import keras
import numpy as np
from keras import layers, ops


@keras.saving.register_keras_serializable("n02")
class DiagonalSSM(layers.Layer):
    """h' = A h + B u, y = C h + D u for every channel, discretised by zero-order hold."""

    def __init__(self, states=4, **kwargs):
        super().__init__(**kwargs)
        self.states = states

    def build(self, shape):
        channels, n = shape[-1], self.states
        rates = np.log(np.tile(np.arange(1, n + 1), (channels, 1)))
        self.a_log = self.add_weight(
            shape=(channels, n),
            name="a_log",
            initializer=lambda s, dtype=None: ops.convert_to_tensor(rates, dtype=dtype),
        )
        self.b = self.add_weight(shape=(channels, n), name="b", initializer="ones")
        self.c = self.add_weight(
            shape=(channels, n), name="c", initializer=keras.initializers.RandomNormal(stddev=0.7)
        )
        self.d = self.add_weight(shape=(channels,), name="d", initializer="ones")
        self.log_dt = self.add_weight(
            shape=(channels,), name="log_dt", initializer=keras.initializers.RandomUniform(-3.0, -0.7)
        )

    def call(self, u):
        a = -ops.exp(self.a_log)
        a_bar = ops.exp(ops.exp(self.log_dt)[:, None] * a)
        b_bar = (a_bar - 1) / a * self.b
        h = ops.zeros_like(u[:, 0])[..., None] * a_bar
        ys = []
        for t in range(u.shape[1]):
            h = a_bar * h + b_bar * u[:, t, :, None]
            ys.append(ops.sum(self.c * h, axis=-1) + self.d * u[:, t])
        return ops.stack(ys, axis=1)


class Block(layers.Layer):
    def __init__(self, width, **kwargs):
        super().__init__(**kwargs)
        self.norm = layers.LayerNormalization(epsilon=1e-6, name="norm")
        self.ssm = DiagonalSSM(name="ssm")
        self.value = layers.Dense(width, name="value")
        self.gate = layers.Dense(width, activation="sigmoid", name="gate")

    def build(self, shape):
        for layer in (self.norm, self.ssm, self.value, self.gate):
            layer.build(shape)

    def call(self, x):
        h = keras.activations.gelu(self.ssm(self.norm(x)), approximate=True)
        return x + self.value(h) * self.gate(h)


def build():
    return keras.Sequential(
        [
            keras.Input((24, 5), name="x"),
            layers.Dense(12, name="encoder"),
            Block(12, name="block0"),
            Block(12, name="block1"),
            layers.Lambda(lambda h: h[:, -1], name="last"),
            layers.Dense(3, name="decoder"),
        ]
    )
