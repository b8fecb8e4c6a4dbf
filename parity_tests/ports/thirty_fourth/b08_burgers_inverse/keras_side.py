"""Finds the viscosity of a flow from measurements: u_t + u u_x = nu u_xx, by a network u(x, t)."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops


class FourierFeatures(layers.Layer):
    """Fixed random frequencies."""

    def __init__(self, count, scale=1.0, seed=11, **kwargs):
        super().__init__(**kwargs)
        self.count, self.scale, self.seed = count, scale, seed

    def build(self, input_shape):
        draw = keras.initializers.RandomNormal(stddev=self.scale, seed=self.seed)
        self.frequencies = self.add_weight(
            name="frequencies", shape=(input_shape[-1], self.count), initializer=draw, trainable=False
        )

    def call(self, x):
        phase = np.pi * ops.matmul(x, self.frequencies)
        return ops.concatenate([ops.sin(phase), ops.cos(phase)], axis=-1)


class AdaptiveTanh(layers.Layer):
    """tanh(n a z) with a learned slope a, one for a layer."""

    def __init__(self, n=2.0, **kwargs):
        super().__init__(**kwargs)
        self.n = n

    def build(self, input_shape):
        self.a = self.add_weight(name="a", shape=(), initializer=keras.initializers.Constant(0.5))

    def call(self, z):
        return ops.tanh(self.n * self.a * z)


class BurgersNet(keras.Model):
    def __init__(self, width=20, depth=3, weight=0.1, **kwargs):
        super().__init__(**kwargs)
        self.weight = weight
        stack = [FourierFeatures(6)]
        for _ in range(depth):
            stack += [layers.Dense(width), AdaptiveTanh()]
        self.net = keras.Sequential(stack + [layers.Dense(1)])
        self.log_nu = self.add_weight(name="log_nu", shape=(), initializer=keras.initializers.Constant(-2.0))

    def call(self, xt, training=False):
        return self.net(xt, training=training)

    def residual(self, xt):
        with tf.GradientTape() as second:
            second.watch(xt)
            with tf.GradientTape() as first:
                first.watch(xt)
                u = self(xt, training=True)
            slope = first.gradient(u, xt)
            u_x, u_t = slope[:, 0:1], slope[:, 1:2]
        u_xx = second.gradient(u_x, xt)[:, 0:1]
        return u, u_t + u * u_x - ops.exp(self.log_nu) * u_xx

    def train_step(self, data):
        xt, measured = data
        with tf.GradientTape() as tape:
            u, residual = self.residual(xt)
            fit = ops.mean(ops.square(u - measured))
            physics = ops.mean(ops.square(residual))
            loss = fit + self.weight * physics
        self.optimizer.apply_gradients(
            zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        )
        return {"loss": loss, "fit": fit, "physics": physics}


def build():
    model = BurgersNet()
    model.compile(optimizer=keras.optimizers.Adam(1e-3))
    return model
