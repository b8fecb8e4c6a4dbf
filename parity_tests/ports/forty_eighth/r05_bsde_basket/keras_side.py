"""Deep BSDE solver: a call spread on the best of ten assets, with a higher rate for borrowing."""

import math

import keras
from keras import layers, ops

ASSETS = 10
STEPS = 8
HORIZON = 0.5
DT = HORIZON / STEPS
SPOT = 100.0
DRIFT = 0.06
SIGMA = 0.2
LEND = 0.04
BORROW = 0.06
CLIP = 50.0


class Gradient(layers.Layer):
    """The subnetwork of one time step: scaled prices to the control Z."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.norm0 = layers.LayerNormalization(epsilon=1e-3, name="norm0")
        self.dense1 = layers.Dense(20, use_bias=False, name="dense1")
        self.norm1 = layers.LayerNormalization(epsilon=1e-3, name="norm1")
        self.dense2 = layers.Dense(20, use_bias=False, name="dense2")
        self.norm2 = layers.LayerNormalization(epsilon=1e-3, name="norm2")
        self.dense3 = layers.Dense(ASSETS, name="dense3")

    def build(self, shape):
        self.norm0.build((None, ASSETS))
        self.dense1.build((None, ASSETS))
        for layer in (self.norm1, self.dense2, self.norm2, self.dense3):
            layer.build((None, 20))
        super().build(shape)

    def call(self, x):
        x = ops.relu(self.norm1(self.dense1(self.norm0(x))))
        x = ops.relu(self.norm2(self.dense2(x)))
        return self.dense3(x)


class DeepBSDE(keras.Model):
    def __init__(self):
        super().__init__(name="deep_bsde")
        self.controls = [Gradient(name=f"control{n}") for n in range(1, STEPS)]

    def build(self, shape):
        self.price = self.add_weight(name="price", shape=(1,), initializer=keras.initializers.Constant(18.0))
        self.first = self.add_weight(
            name="first_control",
            shape=(ASSETS,),
            initializer=keras.initializers.RandomUniform(-0.1, 0.1, seed=1),
        )
        for control in self.controls:
            control.build((None, ASSETS))
        self.built = True

    def generator(self, y, z):
        invested = ops.sum(z, axis=1, keepdims=True) / SIGMA
        short = ops.maximum(invested - y, 0.0)
        return -LEND * y - (DRIFT - LEND) * invested + (BORROW - LEND) * short

    def call(self, noise):
        """Simulates prices and wealth; noise: standard normal increments (batch, step, asset)."""
        dw = noise * math.sqrt(DT)
        ones = ops.ones_like(noise[:, 0, :1])
        x = SPOT * ops.ones_like(noise[:, 0])
        y = ones * self.price
        z = ones * self.first
        for n in range(STEPS):
            y = y - self.generator(y, z) * DT + ops.sum(z * dw[:, n], axis=1, keepdims=True)
            x = x * ops.exp((DRIFT - 0.5 * SIGMA**2) * DT + SIGMA * dw[:, n])
            if n + 1 < STEPS:
                z = self.controls[n](x / SPOT - 1.0) / ASSETS
        return y


def loss(targets, outputs):
    """Square, that goes on as a line beyond the clip."""
    delta = ops.abs(outputs - ops.reshape(ops.cast(targets, outputs.dtype), (-1, 1)))
    return ops.mean(ops.where(delta < CLIP, ops.square(delta), 2.0 * CLIP * delta - CLIP**2))


def build():
    model = DeepBSDE()
    model(ops.zeros((1, STEPS, ASSETS)))
    return model
