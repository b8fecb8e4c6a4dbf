"""Equilibrium layer for sensor rows: a damped iteration to a fixed point, of which the last steps have gradients."""

import keras
from keras import layers, ops


class Equilibrium(layers.Layer):
    def __init__(self, units, free=6, taught=3, damping=0.7, tolerance=0.4, **kwargs):
        super().__init__(**kwargs)
        self.units, self.free, self.taught = units, free, taught
        self.damping, self.tolerance = damping, tolerance

    def build(self, shape):
        self.recur = layers.Dense(self.units, use_bias=False, kernel_initializer="orthogonal", name="recur")
        self.recur.build((None, self.units))
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.norm.build((None, self.units))

    def step(self, z, injected):
        new = ops.tanh(self.norm(self.recur(z) + injected))
        return (1 - self.damping) * z + self.damping * new

    def call(self, injected):
        z = ops.zeros_like(injected)
        for _ in range(self.free):
            new = self.step(z, injected)
            # A row that hardly moves any more has arrived, and stays where it is.
            moving = ops.norm(new - z, axis=-1, keepdims=True) > self.tolerance
            z = ops.where(moving, new, z)
        z = ops.stop_gradient(z)
        for _ in range(self.taught):
            z = self.step(z, injected)
        return z


def build():
    x = keras.Input((18,), name="x")
    injected = layers.Dense(32, name="inject")(x)
    z = Equilibrium(32, name="equilibrium")(injected)
    z = layers.Concatenate()([z, injected])
    h = layers.Dense(24, activation="relu", name="hidden")(z)
    return keras.Model(x, layers.Dense(4, name="classes")(h))
