"""A critic that tells real heartbeats from made ones; the largest singular value of each layer is kept at one.

Targets are 1 for real and -1 for made.
"""

import keras
from keras import layers, ops


def unit(x):
    return x / ops.maximum(ops.norm(x), 1e-12)


class Spectral(layers.Layer):
    """One step of the power method in each pass; in training its vector is kept for the next one."""

    def __init__(self, units, size=None, strides=1, **kwargs):
        super().__init__(**kwargs)
        self.units, self.size, self.strides = units, size, strides

    def build(self, shape):
        kernel = (shape[-1], self.units) if self.size is None else (self.size, shape[-1], self.units)
        self.kernel = self.add_weight(shape=kernel, initializer="glorot_uniform", name="kernel")
        self.bias = self.add_weight(shape=(self.units,), initializer="zeros", name="bias")
        self.u = self.add_weight(shape=(self.units,), initializer="random_normal", trainable=False, name="u")

    def normalised(self, training):
        matrix = ops.reshape(self.kernel, (-1, self.units))
        fixed = ops.stop_gradient(matrix)
        v = unit(ops.matmul(fixed, self.u))
        u = unit(ops.matmul(v, fixed))
        sigma = ops.sum(ops.matmul(v, matrix) * u)
        if training:
            self.u.assign(u)
        return self.kernel / sigma

    def call(self, x, training=False):
        kernel = self.normalised(training)
        if self.size is None:
            return ops.matmul(x, kernel) + self.bias
        return ops.conv(x, kernel, strides=self.strides, padding="valid") + self.bias


def build():
    beat = keras.Input((32, 2), name="beat")
    x = Spectral(8, 5, 2, name="conv1")(beat)
    x = layers.LeakyReLU(negative_slope=0.25)(x)
    x = Spectral(12, 4, 2, name="conv2")(x)
    x = layers.LeakyReLU(negative_slope=0.25)(x)
    x = layers.Flatten()(x)
    x = Spectral(10, name="hidden")(x)
    x = layers.LeakyReLU(negative_slope=0.25)(x)
    return keras.Model(beat, Spectral(1, name="score")(x))


def loss(real, score):
    return ops.relu(1 - ops.reshape(real, (-1,)) * score[:, 0])


def optimizer():
    return keras.optimizers.SGD(0.02, momentum=0.75, nesterov=True)
