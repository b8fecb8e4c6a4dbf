"""Gestures from motion: a gated linear recurrence in both directions, pooled with weights that fade into the past."""

import keras
from keras import layers, ops


class GatedScan(layers.Layer):
    def __init__(self, units, backwards=False, **kwargs):
        super().__init__(**kwargs)
        self.units, self.backwards = units, backwards

    def build(self, shape):
        self.kernel = self.add_weight(
            shape=(shape[-1], 3 * self.units), name="kernel", initializer="glorot_uniform"
        )
        self.bias = self.add_weight(
            shape=(3 * self.units,), name="bias", initializer=keras.initializers.RandomNormal(stddev=0.3)
        )
        self.start = self.add_weight(
            shape=(self.units,), name="start", initializer=keras.initializers.RandomNormal(stddev=0.5)
        )

    def call(self, x):
        if self.backwards:
            x = ops.flip(x, axis=1)
        forget, write, candidate = ops.split(ops.matmul(x, self.kernel) + self.bias, 3, axis=-1)
        forget, write, candidate = ops.sigmoid(forget + 1), ops.sigmoid(write), ops.tanh(candidate)
        h = ops.zeros_like(candidate[:, 0]) + self.start
        states = []
        for t in range(x.shape[1]):
            h = forget[:, t] * h + write[:, t] * candidate[:, t]
            states.append(h)
        states = ops.stack(states, axis=1)
        return ops.flip(states, axis=1) if self.backwards else states


class FadingPool(layers.Layer):
    """A frame counts exp(-s), where s sums the rates of all later frames."""

    def build(self, shape):
        self.rate = layers.Dense(1, activation="softplus", name="rate")
        self.rate.build(shape)

    def call(self, h):
        rate = self.rate(h) * 0.2
        later = ops.flip(ops.cumsum(ops.flip(rate, axis=1), axis=1), axis=1) - rate
        weight = ops.exp(-later)
        return ops.sum(weight * h, axis=1) / ops.sum(weight, axis=1)


def build():
    x = keras.Input((20, 6), name="x")
    both = layers.concatenate(
        [GatedScan(8, name="forwards")(x), GatedScan(8, backwards=True, name="backwards")(x)]
    )
    h = layers.Conv1D(14, 3, padding="same", activation="tanh", name="smooth")(both)
    h = FadingPool(name="pool")(h)
    return keras.Model(x, layers.Dense(5, name="gesture")(h))
