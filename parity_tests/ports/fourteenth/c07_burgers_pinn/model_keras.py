"""Physics-informed network for Burgers' equation; the viscosity is found along with the solution."""

import keras
import tensorflow as tf
from keras import layers, ops


class Burgers(keras.Model):
    def __init__(self, width=16, depth=3, **kwargs):
        super().__init__(**kwargs)
        self.hidden = [
            layers.Dense(width, activation="tanh", kernel_initializer="glorot_normal") for _ in range(depth)
        ]
        self.out = layers.Dense(1)

    def build(self, shape):
        self.log_viscosity = self.add_weight(
            shape=(), initializer=keras.initializers.Constant(-3.0), name="log_viscosity"
        )
        for layer in self.hidden:
            layer.build(shape)
            shape = (*shape[:-1], layer.units)
        self.out.build(shape)
        self.built = True

    def solution(self, t, x):
        h = ops.concatenate([t, x], axis=1)
        for layer in self.hidden:
            h = layer(h)
        return self.out(h)

    def call(self, points):
        t, x = points[:, :1], points[:, 1:]
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape(persistent=True) as inner:
                inner.watch([t, x])
                u = self.solution(t, x)
            u_t, u_x = inner.gradient(u, t), inner.gradient(u, x)
        u_xx = outer.gradient(u_x, x)
        residual = u_t + u * u_x - ops.exp(self.log_viscosity) * u_xx
        return ops.concatenate([u, residual], axis=1)


def build():
    model = Burgers()
    model.build((None, 2))
    return model


def loss(y_true, y_pred):
    """Measured values, and the equation everywhere."""
    return ops.square(y_true[:, 0] - y_pred[:, 0]) + 0.3 * ops.square(y_pred[:, 1])
