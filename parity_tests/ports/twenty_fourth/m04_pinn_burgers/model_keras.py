"""Burgers' equation from sparse sensors, with unknown viscosity.

u_t + u u_x = nu u_xx on t in [0, 1], x in [-1, 1]. The network gives
u(t, x); training fits the sensor values and the residual at the same points.
"""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

WIDTH, DEPTH = 20, 3
RESIDUAL_WEIGHT = 0.1


class BurgersNet(keras.Model):
    """Gated tanh network (two encoders mix every hidden layer)."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.gate_u = layers.Dense(WIDTH, activation="tanh", name="gate_u")
        self.gate_v = layers.Dense(WIDTH, activation="tanh", name="gate_v")
        self.hidden = [layers.Dense(WIDTH, activation="tanh", name=f"hidden_{i}") for i in range(DEPTH)]
        self.head = layers.Dense(1, name="head")
        self.log_nu = self.add_weight(shape=(), initializer=keras.initializers.Constant(-2.0), name="log_nu")

    def features(self, tx):
        t, x = tx[:, 0:1], tx[:, 1:2]
        return ops.concatenate([t, x, ops.sin(np.pi * x), ops.cos(np.pi * x)], axis=-1)

    def call(self, tx):
        f = self.features(tx)
        u, v = self.gate_u(f), self.gate_v(f)
        h = f
        for layer in self.hidden:
            z = layer(h)
            h = (1.0 - z) * u + z * v
        return self.head(h)

    def residual(self, tx):
        """Value of u and of u_t + u u_x - nu u_xx, both (B, 1)."""
        with tf.GradientTape() as outer:
            outer.watch(tx)
            with tf.GradientTape() as inner:
                inner.watch(tx)
                u = self(tx, training=True)
            first = inner.gradient(u, tx)
            u_t, u_x = first[:, 0:1], first[:, 1:2]
        u_xx = outer.gradient(u_x, tx)[:, 1:2]
        nu = ops.exp(self.log_nu)
        return u, u_t + u * u_x - nu * u_xx

    @property
    def metrics(self):
        """None; the progress bar shows the loss of the last batch."""
        return []

    def train_step(self, data):
        tx, y = data
        with tf.GradientTape() as tape:
            u, res = self.residual(tx)
            fit = ops.mean(ops.square(u - ops.reshape(y, ops.shape(u))))
            loss = fit + RESIDUAL_WEIGHT * ops.mean(ops.square(res))
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {"loss": loss}


def build():
    model = BurgersNet(name="burgers")
    model(np.zeros((1, 2), dtype=keras.backend.floatx()))
    return model
