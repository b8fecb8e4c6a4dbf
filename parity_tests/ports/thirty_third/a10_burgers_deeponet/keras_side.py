"""DeepONet for the viscous Burgers / heat operator: u0 at 20 sensors, query (x, t) -> u(x, t)."""

import keras
import numpy as np
from keras import layers, ops

P = 16


class FourierFeatures(layers.Layer):
    """fixed random projection, sin and cos"""

    def __init__(self, count, seed=7, **kw):
        super().__init__(**kw)
        self.count, self.seed = count, seed

    def build(self, shape):
        b = np.random.RandomState(self.seed).normal(0, 2.0, (shape[-1], self.count))
        self.b = self.add_weight(
            shape=b.shape,
            initializer=lambda s, dtype=None: ops.convert_to_tensor(b, dtype=dtype),
            trainable=False,
            name="b",
        )

    def call(self, x):
        z = ops.matmul(x, self.b)
        return ops.concatenate([ops.sin(z), ops.cos(z)], axis=-1)


class Sine(layers.Layer):
    """SIREN layer with a trained frequency per unit"""

    def __init__(self, units, **kw):
        super().__init__(**kw)
        self.linear = layers.Dense(units)
        self.units = units

    def build(self, shape):
        self.linear.build(shape)
        self.omega = self.add_weight(
            shape=(self.units,), initializer=keras.initializers.Constant(1.5), name="omega"
        )

    def call(self, x):
        return ops.sin(self.omega * self.linear(x))


class Combine(layers.Layer):
    def build(self, shapes):
        self.offset = self.add_weight(shape=(), initializer="zeros", name="offset")

    def call(self, inputs):
        branch, trunk, points = inputs
        g = ops.einsum("bp,bp->b", branch, trunk) / P + self.offset
        x = points[:, 0]
        return ops.expand_dims(4.0 * x * (1.0 - x) * g, -1)  # zero at both ends


def build():
    sensors = keras.Input((20,), name="sensors")
    points = keras.Input((2,), name="points")
    branch = layers.Dense(24, activation="tanh", name="branch1")(sensors)
    branch = layers.Dense(P, name="branch2")(branch)
    trunk = FourierFeatures(10, name="fourier")(points)
    trunk = Sine(24, name="sine1")(trunk)
    trunk = Sine(P, name="sine2")(trunk)
    return keras.Model([sensors, points], Combine(name="combine")([branch, trunk, points]))


def optimizer():
    schedule = keras.optimizers.schedules.CosineDecay(
        1e-3, decay_steps=30, alpha=0.05, warmup_target=0.1, warmup_steps=4
    )
    return keras.optimizers.SGD(schedule, momentum=0.875, global_clipnorm=0.3)
