"""Which bird sings? Band-pass filters with learned cut-offs (SincNet) on the raw wave, frequencies in kHz."""

import math

import keras
import numpy as np
from keras import layers, ops


class SincConv(layers.Layer):
    def __init__(self, filters=6, size=31, rate=8.0, stride=2, min_low=0.05, min_band=0.1, **kwargs):
        super().__init__(**kwargs)
        self.filters, self.size, self.rate, self.stride = filters, size, rate, stride
        self.min_low, self.min_band = min_low, min_band

    def build(self, shape):
        mel = np.linspace(0.3, 2.6, self.filters)
        self.low = self.add_weight(shape=(self.filters,), name="low")
        self.low.assign(mel)
        self.band = self.add_weight(shape=(self.filters,), name="band")
        self.band.assign(np.full(self.filters, 0.5))

    def kernel(self):
        low = self.min_low + ops.abs(self.low)
        high = ops.minimum(low + self.min_band + ops.abs(self.band), self.rate / 2)
        half = self.size // 2
        time = ops.cast(np.arange(-half, 0) / self.rate, low.dtype)[:, None]
        left = (ops.sin(2 * math.pi * high * time) - ops.sin(2 * math.pi * low * time)) / (math.pi * time)
        middle = 2 * (high - low)[None]
        bands = ops.concatenate([left, middle, ops.flip(left, axis=0)], axis=0) / (2 * (high - low))
        window = 0.54 - 0.46 * np.cos(2 * np.pi * np.arange(self.size) / (self.size - 1))
        return (bands * ops.cast(window, low.dtype)[:, None])[:, None]

    def call(self, x):
        return ops.conv(x, self.kernel(), strides=self.stride, padding="valid")

    def compute_output_shape(self, shape):
        return (shape[0], (shape[1] - self.size) // self.stride + 1, self.filters)


def build(samples=240, classes=4):
    wave = keras.Input((samples, 1), name="wave")
    x = SincConv(name="sinc")(wave)
    x = layers.MaxPooling1D(3)(ops.log1p(ops.abs(x)))
    x = layers.LayerNormalization(epsilon=1e-6, name="norm")(x)
    for i in range(2):
        x = layers.Conv1D(10, 5, padding="same", use_bias=False, name=f"conv_{i}")(x)
        x = layers.BatchNormalization(momentum=0.95, name=f"bn_{i}")(x)
        x = layers.Activation("relu")(x)
    mean = ops.mean(x, axis=1)
    deviation = ops.sqrt(ops.var(x, axis=1) + 1e-5)
    x = layers.Dense(12, activation="tanh", name="hidden")(ops.concatenate([mean, deviation], axis=-1))
    return keras.Model(wave, layers.Dense(classes, name="species")(x))
