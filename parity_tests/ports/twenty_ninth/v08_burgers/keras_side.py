"""Viscous Burgers surrogate. Columns of x are (t, x); y is the measured velocity u.

Trained on the measurements plus the PDE residual at the same points.
"""

import keras
import tensorflow as tf
from keras import ops

NU = 0.05
LAMBDA = 0.3


class Burgers(keras.Model):
    def __init__(self, width=14):
        super().__init__()
        self.first = keras.layers.Dense(width, name="first")
        self.second = keras.layers.Dense(width, activation="tanh", name="second")
        self.gate = keras.layers.Dense(width, activation="sigmoid", name="gate")
        self.readout = keras.layers.Dense(1, name="readout")

    def call(self, tx):
        h = ops.sin(3.0 * self.first(tx))
        g = self.gate(tx)
        h = g * self.second(h) + (1.0 - g) * h
        return self.readout(h)

    def pde(self, tx):
        t, x = tx[:, 0:1], tx[:, 1:2]
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch([t, x])
                u = self(tf.concat([t, x], axis=1), training=True)
            u_t, u_x = inner.gradient(u, [t, x])
        u_xx = outer.gradient(u_x, x)
        return u, u_t + u * u_x - NU * u_xx

    def train_step(self, data):
        tx, target, _ = keras.utils.unpack_x_y_sample_weight(data)
        tx = ops.cast(tx, self.compute_dtype)
        with tf.GradientTape() as tape:
            u, residual = self.pde(tx)
            loss = self.compute_loss(x=tx, y=target, y_pred=u) + LAMBDA * ops.mean(ops.square(residual))
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {"loss": loss}


def build():
    net = Burgers()
    net(ops.zeros((1, 2)))
    net.compile(loss="mse")
    return net
