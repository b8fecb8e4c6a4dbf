"""Faults of a bearing from raw vibration: learnable band-pass filters (SincNet), then a small convolutional head."""

import math

import keras
import numpy as np
from keras import layers, ops


class SincConv(layers.Layer):
    """Band-pass filters with learned edges; frequencies in units of the sampling rate."""

    def __init__(self, filters=8, kernel_size=31, min_low=0.01, min_band=0.02, **kw):
        super().__init__(**kw)
        self.filters, self.kernel_size, self.min_low, self.min_band = filters, kernel_size, min_low, min_band

    def build(self, shape):
        edges = np.linspace(0.01, 0.45, self.filters + 1)
        const = lambda a: lambda shape, dtype=None: ops.convert_to_tensor(a, dtype=dtype)
        self.low = self.add_weight(name="low", shape=(self.filters,), initializer=const(edges[:-1]))
        self.band = self.add_weight(name="band", shape=(self.filters,), initializer=const(np.diff(edges)))
        half = (self.kernel_size - 1) // 2
        self.n = np.arange(-half, half + 1)[:, None]
        self.window = np.hamming(self.kernel_size)[:, None]

    def call(self, x):
        low = self.min_low + ops.abs(self.low)
        high = ops.minimum(low + self.min_band + ops.abs(self.band), 0.5)
        n = ops.convert_to_tensor(self.n, dtype=low.dtype)
        window = ops.convert_to_tensor(self.window, dtype=low.dtype)
        safe = ops.where(n == 0, 1.0, n)
        sine = lambda f: ops.where(n == 0, 2.0 * f, ops.sin(2 * math.pi * f * n) / (math.pi * safe))
        kernel = (sine(high) - sine(low)) * window / (2.0 * (high - low))
        return ops.conv(x[..., None], kernel[:, None, :], strides=1, padding="valid")


def build():
    inp = keras.Input((128,), name="x")
    h = SincConv(name="sinc")(inp)
    h = layers.Lambda(ops.abs, name="rectify")(h)
    h = layers.MaxPooling1D(4)(h)
    h = layers.LayerNormalization(epsilon=1e-5, name="norm")(h)
    h = layers.Conv1D(12, 5, name="conv")(h)
    h = layers.LeakyReLU(negative_slope=0.25)(h)
    h = layers.AveragePooling1D(2)(h)
    return keras.Model(inp, layers.Dense(4, name="fault")(layers.Flatten()(h)))


def smoothed_ce(y, logits):
    t = ops.one_hot(ops.cast(ops.reshape(y, (-1,)), "int32"), 4, dtype=logits.dtype)
    return ops.mean(ops.categorical_crossentropy(t * 0.9 + 0.025, logits, from_logits=True))


def optimizer():
    rate = keras.optimizers.schedules.ExponentialDecay(0.03125, decay_steps=5, decay_rate=0.5, staircase=True)
    return keras.optimizers.SGD(rate, momentum=0.75)
