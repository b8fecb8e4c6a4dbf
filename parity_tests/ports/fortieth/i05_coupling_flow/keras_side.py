"""Class-conditional flow (Glow-like steps on tables): call() gives log p(x | class)."""

import keras
import numpy as np
import tensorflow as tf
from scipy.linalg import lu

D, CLASSES, STEPS = 6, 3, 3


class ActNorm(keras.layers.Layer):
    def build(self, shape):
        self.bias = self.add_weight(name="bias", shape=(D,), initializer="zeros")
        self.log_scale = self.add_weight(
            name="log_scale", shape=(D,), initializer=keras.initializers.Constant(-0.35)
        )

    def call(self, x):
        return (x + self.bias) * tf.exp(self.log_scale), tf.reduce_sum(self.log_scale)


class InvLinear(keras.layers.Layer):
    """x W with W = P L (U + diag(sign * exp(log_s)))."""

    def __init__(self, seed, **kw):
        super().__init__(**kw)
        q = np.linalg.qr(np.random.default_rng(seed).normal(size=(D, D)))[0]
        self.p, self.l0, u = [a.astype("float32") for a in lu(q)]
        s = np.diag(u)
        self.sign, self.log0, self.u0 = np.sign(s), np.log(np.abs(s)), np.triu(u, 1)
        self.lower = np.tril(np.ones((D, D), np.float32), -1)

    def build(self, shape):
        const = lambda a: lambda shape, dtype=None: tf.constant(a, dtype=dtype)
        self.l = self.add_weight(name="l", shape=(D, D), initializer=const(self.l0))
        self.u = self.add_weight(name="u", shape=(D, D), initializer=const(self.u0))
        self.log_s = self.add_weight(name="log_s", shape=(D,), initializer=const(self.log0))

    def call(self, x):
        c = lambda a: tf.cast(tf.constant(a), x.dtype)
        l = self.l * c(self.lower) + tf.eye(D, dtype=x.dtype)
        u = self.u * c(self.lower.T) + tf.linalg.diag(c(self.sign) * tf.exp(self.log_s))
        return tf.matmul(x, tf.matmul(c(self.p), tf.matmul(l, u))), tf.reduce_sum(self.log_s)


class Coupling(keras.layers.Layer):
    def __init__(self, flip, **kw):
        super().__init__(**kw)
        self.flip = flip
        self.h = keras.layers.Dense(24, activation="gelu", name="h")
        self.st = keras.layers.Dense(
            D, kernel_initializer=keras.initializers.RandomNormal(stddev=0.15), name="st"
        )

    def call(self, x):
        a, b = tf.split(x, 2, -1)
        if self.flip:
            a, b = b, a
        s, t = tf.split(self.st(self.h(a)), 2, -1)
        s = 1.5 * tf.tanh(s / 1.5)
        b = b * tf.exp(s) + t
        return tf.concat([b, a] if self.flip else [a, b], -1), tf.reduce_sum(s, -1)


class Flow(keras.Model):
    def __init__(self):
        super().__init__()
        self.flow = []
        for i in range(STEPS):
            self.flow += [
                ActNorm(name=f"act{i}"),
                InvLinear(40 + i, name=f"inv{i}"),
                Coupling(i % 2 == 1, name=f"cpl{i}"),
            ]
        self.mu = self.add_weight(
            name="mu", shape=(CLASSES, D), initializer=keras.initializers.RandomNormal(stddev=0.3, seed=9)
        )
        self.log_sigma = self.add_weight(name="log_sigma", shape=(CLASSES, D), initializer="zeros")

    def call(self, x):
        logdet = 0.0
        for f in self.flow:
            x, ld = f(x)
            logdet += ld
        e = (x[:, None] - self.mu) * tf.exp(-self.log_sigma)
        base = -tf.reduce_sum(0.5 * tf.square(e) + self.log_sigma, -1) - 0.5 * D * np.float32(
            np.log(2 * np.pi)
        )
        return base + tf.reshape(tf.zeros_like(base[:, 0]) + logdet, (-1, 1))

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            ll = tf.gather(self(x, training=True), tf.cast(y, tf.int32), axis=1, batch_dims=1)
            loss = -tf.reduce_mean(ll) / D
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


def build():
    m = Flow()
    m(np.zeros((2, D), "float32"))
    return m
