"""Inverse PINN: damped oscillator u'' + 2 zeta u' + omega^2 u = 0 with unknown zeta."""

import keras
import tensorflow as tf
from keras import layers, ops

LAMBDA_ODE, LAMBDA_IC = 0.05, 0.5


class OscillatorPINN(keras.Model):
    def __init__(self, width=20, depth=3):
        super().__init__()
        self.log_zeta = self.add_weight(
            shape=(), initializer=keras.initializers.Constant(-1.2), name="log_zeta"
        )
        self.hidden = [layers.Dense(width, activation="tanh", name=f"h{i}") for i in range(depth)]
        self.out = layers.Dense(1, name="u")

    def call(self, x):
        t, omega = x[:, :1], x[:, 1:]
        h = ops.concatenate([t, omega, ops.sin(omega * t), ops.cos(omega * t)], axis=-1)
        for layer in self.hidden:
            h = layer(h)
        return self.out(h)

    def derivatives(self, t, omega):
        with tf.GradientTape() as second:
            second.watch(t)
            with tf.GradientTape() as first:
                first.watch(t)
                u = self(tf.concat([t, omega], axis=1))
            u_t = first.gradient(u, t)
        return u, u_t, second.gradient(u_t, t)

    def train_step(self, data):
        x, y = data
        t, omega = x[:, :1], x[:, 1:]
        with tf.GradientTape() as tape:
            u, u_t, u_tt = self.derivatives(t, omega)
            zeta = tf.exp(self.log_zeta)
            residual = u_tt + 2.0 * zeta * u_t + omega**2 * u
            u0, v0, _ = self.derivatives(tf.zeros_like(t), omega)
            loss = (
                tf.reduce_mean(tf.square(u - y))
                + LAMBDA_ODE * tf.reduce_mean(tf.square(residual))
                + LAMBDA_IC * tf.reduce_mean(tf.square(u0 - 1.0) + tf.square(v0))
            )
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(grads, self.trainable_variables)
        return {"loss": loss}


def build():
    model = OscillatorPINN()
    model(ops.zeros((2, 2)))
    return model
