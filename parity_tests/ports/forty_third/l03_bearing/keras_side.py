"""Bearing faults from two accelerometers; the first layer is a bank of learnable wavelets."""

import math

import keras
import numpy as np
from keras import ops
from keras.layers import (
    Activation,
    AveragePooling1D,
    BatchNormalization,
    Conv1D,
    Dense,
    GlobalAveragePooling1D,
    GlobalMaxPooling1D,
    Input,
    Layer,
    Multiply,
    Reshape,
    concatenate,
)

LENGTH, SENSORS, CLASSES = 256, 2, 4
TAPS = 33
GRID = np.linspace(-4.0, 4.0, TAPS).astype(np.float32)
TAPER = np.hanning(TAPS).astype(np.float32)


class WaveletBank(Layer):
    """(batch, time, sensor) -> (batch, time / 2, sensor * filters)"""

    def __init__(self, filters, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters

    def build(self, shape):
        n = self.filters
        self.scale = self.add_weight(
            name="scale", shape=(n,), initializer=lambda s, dtype=None: ops.linspace(0.6, 2.0, n)
        )
        self.shift = self.add_weight(
            name="shift", shape=(n,), initializer=keras.initializers.RandomUniform(-0.8, 0.8)
        )
        self.gain = self.add_weight(name="gain", shape=(n,), initializer="ones")

    def kernels(self):
        u = (GRID[:, None] - self.shift[None, :]) / self.scale[None, :]
        return self.gain * ops.exp(-0.25 * ops.square(u)) * ops.cos(math.pi * u) * TAPER[:, None]

    def call(self, x):
        k = ops.expand_dims(self.kernels(), 1)
        out = [ops.conv(x[..., s : s + 1], k, strides=2, padding="same") for s in range(SENSORS)]
        return ops.concatenate(out, axis=-1)


def squeeze_excite(x, ch, name):
    s = GlobalAveragePooling1D(name=name + "_pool")(x)
    s = Dense(ch // 4, activation="relu", name=name + "_down")(s)
    s = Dense(ch, activation="hard_sigmoid", name=name + "_up")(s)
    return Multiply(name=name + "_mul")([x, Reshape((1, ch))(s)])


def build():
    inp = Input((LENGTH, SENSORS), name="signal")
    x = WaveletBank(8, name="wavelets")(inp)
    x = ops.log1p(ops.square(x))
    x = BatchNormalization(name="bn_energy")(x)
    x = Conv1D(16, 5, padding="same", activation="elu", name="conv_a")(x)
    x = AveragePooling1D(2, name="pool")(x)
    x = Conv1D(24, 3, padding="causal", dilation_rate=4, use_bias=False, name="conv_b")(x)
    x = BatchNormalization(name="bn_b")(x)
    x = Activation("silu")(x)
    x = squeeze_excite(x, 24, "se")
    x = concatenate([GlobalAveragePooling1D()(x), GlobalMaxPooling1D()(x)])
    x = Dense(24, activation="relu", name="hidden")(x)
    return keras.Model(inp, Dense(CLASSES, name="fault")(x), name="bearing")


def optimizer():
    return keras.optimizers.SGD(learning_rate=0.05, momentum=0.9, clipnorm=0.2)
