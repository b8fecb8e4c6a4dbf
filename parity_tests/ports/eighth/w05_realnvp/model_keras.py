"""RealNVP on tabular measurements: the model gives the log density of each row."""

import math

import keras
from keras import layers, ops


class ActNorm(layers.Layer):
    def build(self, shape):
        self.log_scale = self.add_weight(name="log_scale", shape=(shape[-1],), initializer="zeros")
        self.offset = self.add_weight(name="offset", shape=(shape[-1],), initializer="zeros")

    def call(self, x):
        return (x + self.offset) * ops.exp(self.log_scale), ops.sum(self.log_scale)


class AffineCoupling(layers.Layer):
    """The first half conditions the second one."""

    def __init__(self, half, width, **kwargs):
        super().__init__(**kwargs)
        self.half = half
        self.net = [layers.Dense(width, "tanh", name="first"), layers.Dense(width, "relu", name="second")]
        self.to_scale = layers.Dense(half, "tanh", name="to_scale")
        self.to_shift = layers.Dense(half, name="to_shift")

    def build(self, shape):
        size = self.half
        for layer in self.net:
            layer.build((None, size))
            size = layer.units
        self.bound = self.add_weight(name="bound", shape=(self.half,), initializer="ones")
        self.to_scale.build((None, size))
        self.to_shift.build((None, size))

    def call(self, x):
        a, b = x[:, : self.half], x[:, self.half :]
        h = a
        for layer in self.net:
            h = layer(h)
        log_s = self.bound * self.to_scale(h)
        b = b * ops.exp(log_s) + self.to_shift(h)
        return ops.concatenate([a, b], axis=-1), ops.sum(log_s, axis=-1)


class RealNVP(keras.Model):
    def __init__(self, dim=6, width=24, depth=4, **kwargs):
        super().__init__(**kwargs)
        self.dim = dim
        self.norms = [ActNorm(name=f"actnorm_{i}") for i in range(depth)]
        self.couplings = [AffineCoupling(dim // 2, width, name=f"coupling_{i}") for i in range(depth)]

    def call(self, x):
        log_det = ops.zeros_like(x[:, 0])
        for norm, coupling in zip(self.norms, self.couplings):
            x, d = norm(x)
            log_det = log_det + d
            x, d = coupling(x)
            log_det = log_det + d
            x = ops.flip(x, axis=-1)
        log_p = -0.5 * ops.sum(ops.square(x), axis=-1) - 0.5 * self.dim * math.log(2 * math.pi)
        return ops.expand_dims(log_p + log_det, -1)


def build():
    model = RealNVP()
    model(ops.zeros((1, 6)))
    return model


def negative_log_likelihood(y_true, y_pred):
    return -ops.mean(y_pred, axis=-1)
