"""PINN for u_t = alpha u_xx on a rod (x in 0..2 m, t in 0..30 min), alpha is found along with u."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

SPAN = np.array([2.0, 30.0], np.float32)
FREQS = np.random.default_rng(3).normal(0.0, 0.6, (2, 12)).astype(np.float32)
LAMBDA_PDE, LAMBDA_BC = np.float32(0.5), np.float32(0.2)


class Fourier(layers.Layer):
    def build(self, shape):
        self.b = self.add_weight(
            shape=FREQS.shape,
            trainable=False,
            name="b",
            initializer=lambda s, dtype=None: tf.cast(tf.constant(FREQS), dtype or "float32"),
        )

    def call(self, x):
        p = 2.0 * np.pi * tf.matmul(x, self.b)
        return tf.concat([tf.sin(p), tf.cos(p)], axis=-1)


class RodPINN(keras.Model):
    def __init__(self):
        super().__init__()
        self.net = keras.Sequential(
            [
                keras.Input((2,)),
                layers.Rescaling(1.0 / SPAN),
                Fourier(name="fourier"),
                layers.Dense(32, activation="tanh", name="d1"),
                layers.Dense(32, activation="tanh", name="d2"),
                layers.Dense(16, activation="silu", name="d3"),
                layers.Dense(1, name="u"),
            ]
        )
        self.tracker = keras.metrics.Mean(name="loss")
        self.raw_alpha = self.add_weight(
            shape=(), initializer=keras.initializers.Constant(-3.0), name="raw_alpha"
        )

    @property
    def metrics(self):
        return [self.tracker]

    def call(self, xt):
        return self.net(xt)

    def residual(self, xt):
        x, t = xt[:, :1], xt[:, 1:]
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape(persistent=True) as inner:
                inner.watch([x, t])
                u = self.net(tf.concat([x, t], axis=1))
            u_x = inner.gradient(u, x)
            u_t = inner.gradient(u, t)
        u_xx = outer.gradient(u_x, x)
        return u_t - tf.math.softplus(self.raw_alpha) * u_xx

    def total_loss(self, xt, u):
        data = tf.reduce_mean(tf.square(self.net(xt) - u))
        pde = tf.reduce_mean(tf.square(self.residual(xt)))
        t = xt[:, 1:]
        ends = tf.concat([tf.concat([tf.zeros_like(t), t], 1), tf.concat([2.0 * tf.ones_like(t), t], 1)], 0)
        bc = tf.reduce_mean(tf.square(self.net(ends)))
        return data + tf.cast(LAMBDA_PDE, data.dtype) * pde + tf.cast(LAMBDA_BC, data.dtype) * bc

    def train_step(self, batch):
        xt, u = batch
        with tf.GradientTape() as tape:
            loss = self.total_loss(xt, u)
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(grads, self.trainable_variables)
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


def build():
    model = RodPINN()
    model(np.zeros((1, 2), np.float32))
    return model
