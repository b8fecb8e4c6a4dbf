"""RealNVP density model for 6-d tabular data, trained by maximum likelihood."""

import math

import keras
import tensorflow as tf
from keras import layers, ops


class ActNorm(layers.Layer):
    def build(self, shape):
        d = shape[-1]
        self.log_scale = self.add_weight(name="log_scale", shape=(d,), initializer="zeros")
        self.shift = self.add_weight(name="shift", shape=(d,), initializer="zeros")

    def call(self, x):
        return (x + self.shift) * ops.exp(self.log_scale), ops.sum(self.log_scale)


class Coupling(layers.Layer):
    def __init__(self, half, hidden, swap, **kw):
        super().__init__(**kw)
        self.half, self.swap = half, swap
        self.net = keras.Sequential(
            [
                layers.Dense(hidden, activation="tanh"),
                layers.Dense(hidden, activation="tanh"),
                layers.Dense(2 * half, kernel_initializer=keras.initializers.RandomNormal(stddev=0.05)),
            ]
        )

    def build(self, shape):
        self.net.build((None, self.half))
        self.s_gain = self.add_weight(
            name="s_gain", shape=(self.half,), initializer=keras.initializers.Constant(0.8)
        )

    def call(self, x):
        a, b = x[:, : self.half], x[:, self.half :]
        if self.swap:
            a, b = b, a
        h = self.net(a)
        s = self.s_gain * ops.tanh(h[:, : self.half])
        b = b * ops.exp(s) + h[:, self.half :]
        y = ops.concatenate([b, a] if self.swap else [a, b], axis=-1)
        return y, ops.sum(s, axis=-1)


class RealNVP(keras.Model):
    def __init__(self, dim=6, depth=4, hidden=24, **kw):
        super().__init__(**kw)
        self.dim = dim
        self.norms = [ActNorm(name=f"actnorm_{i}") for i in range(depth)]
        self.couplings = [Coupling(dim // 2, hidden, bool(i % 2), name=f"coupling_{i}") for i in range(depth)]
        self.loss_tracker = keras.metrics.Mean(name="loss")

    def call(self, x, training=None):
        logdet = 0.0
        for norm, coupling in zip(self.norms, self.couplings):
            x, ld = norm(x)
            logdet = logdet + ld
            x, ld = coupling(x)
            logdet = logdet + ld
        return x, logdet

    def nll(self, z, logdet):
        log_prior = -0.5 * ops.sum(z * z, axis=-1) - 0.5 * self.dim * math.log(2.0 * math.pi)
        return -ops.mean(log_prior + logdet)

    @property
    def metrics(self):
        return [self.loss_tracker]

    def train_step(self, data):
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            z, logdet = self(x, training=True)
            loss = self.nll(z, logdet)
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}


def build():
    model = RealNVP()
    model(ops.zeros((8, 6)))
    return model
