"""Classifier that knows what it does not know: spectral norms, and a Gaussian process head of random features."""

import math

import keras
import numpy as np
from keras import layers, ops

WIDTH, FEATURES, CLASSES = 24, 48, 3


def unit(x):
    return x / ops.sqrt(ops.sum(ops.square(x)))


class SpectralDense(layers.Layer):
    """The largest singular value is held at or below a bound; one power iteration in each training pass."""

    def __init__(self, units, bound=0.9, **kwargs):
        super().__init__(**kwargs)
        self.units, self.bound = units, bound

    def build(self, shape):
        self.kernel = self.add_weight(
            shape=(shape[-1], self.units), initializer="glorot_normal", name="kernel"
        )
        self.bias = self.add_weight(shape=(self.units,), initializer="zeros", name="bias")
        self.u = self.add_weight(shape=(self.units,), initializer="ones", trainable=False, name="u")

    def call(self, x, training=False):
        frozen = ops.stop_gradient(self.kernel)
        u = unit(self.u)
        v = unit(ops.matmul(frozen, u))
        if training:
            u = unit(ops.matmul(v, frozen))
            self.u.assign(u)
        sigma = ops.sum(ops.matmul(v, self.kernel) * u)
        kernel = self.kernel / ops.maximum(sigma / self.bound, 1.0)
        return ops.matmul(x, kernel) + self.bias


class RandomFeatureGP(layers.Layer):
    momentum, ridge = 0.9, 1e-2

    def build(self, shape):
        rng = np.random.default_rng(7)
        fixed = {
            "projection": rng.normal(size=(shape[-1], FEATURES)),
            "phase": rng.uniform(0, 2 * np.pi, FEATURES),
        }
        for name, value in fixed.items():
            init = lambda size, dtype, value=value: ops.convert_to_tensor(value, dtype=dtype)
            setattr(
                self, name, self.add_weight(shape=value.shape, initializer=init, trainable=False, name=name)
            )
        self.precision = self.add_weight(
            shape=(FEATURES, FEATURES),
            initializer=keras.initializers.Identity(),
            trainable=False,
            name="precision",
        )
        self.beta = self.add_weight(shape=(FEATURES, CLASSES), initializer="glorot_normal", name="beta")

    def call(self, h, training=False):
        phi = math.sqrt(2 / FEATURES) * ops.cos(ops.matmul(h, self.projection) + self.phase)
        logits = ops.matmul(phi, self.beta)
        if training:
            rows = ops.cast(ops.shape(phi)[0], phi.dtype)
            batch = ops.matmul(ops.transpose(phi), phi) / rows
            self.precision.assign(
                self.momentum * self.precision + (1 - self.momentum) * ops.stop_gradient(batch)
            )
            return logits
        covariance = ops.inv(self.precision + self.ridge * ops.eye(FEATURES, dtype=phi.dtype))
        variance = ops.sum(ops.matmul(phi, covariance) * phi, axis=-1, keepdims=True)
        return logits / ops.sqrt(1 + np.pi / 8 * variance)


class SNGP(keras.Model):
    def __init__(self):
        super().__init__()
        self.embed = layers.Dense(WIDTH)
        self.blocks = [SpectralDense(WIDTH) for _ in range(3)]
        self.head = RandomFeatureGP()

    def call(self, x, training=False):
        h = self.embed(x)
        for block in self.blocks:
            h = h + ops.tanh(block(h, training=training))
        return self.head(h, training=training)


def build():
    return SNGP()
