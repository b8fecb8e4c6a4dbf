"""RealNVP of six features; the last output is the log determinant."""

import keras
import numpy as np
from keras import layers, ops


class Coupling(layers.Layer):
    def __init__(self, even, **options):
        super().__init__(**options)
        self.even = even
        self.hidden = layers.Dense(24, activation="tanh")
        self.out = layers.Dense(12)

    def build(self, shape):
        self.limit = self.add_weight(
            shape=(6,), initializer=keras.initializers.RandomUniform(0.5, 1.0), name="limit"
        )
        self.hidden.build(shape)
        self.out.build((None, 24))

    def call(self, x):
        keep = ops.cast(np.arange(6) % 2 == (0 if self.even else 1), x.dtype)
        s, t = ops.split(self.out(self.hidden(x * keep)), 2, axis=-1)
        s = ops.tanh(s) * self.limit * (1 - keep)
        t = t * (1 - keep)
        return x * ops.exp(s) + t, ops.sum(s, axis=-1, keepdims=True)


def build():
    x = inputs = keras.Input((6,), name="x")
    total = []
    for i in range(4):
        x, determinant = Coupling(i % 2 == 0)(x)
        total.append(determinant)
    return keras.Model(inputs, layers.Concatenate()([x, layers.Add()(total)]))


def loss(y_true, y_pred):
    z, determinant = y_pred[:, :6], y_pred[:, 6]
    return 0.5 * ops.sum(ops.square(z), -1) + 3 * float(np.log(2 * np.pi)) - determinant
