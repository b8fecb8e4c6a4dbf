"""A harmonic synthesizer played by a GRU (DDSP): pitch and loudness in frames give 128 samples of sound."""

import math

import keras
import numpy as np
from keras import layers, ops


def exp_sigmoid(x):
    return 2.0 * ops.power(ops.sigmoid(x), math.log(10.0)) + 1e-7


def upsample(frames, hop):
    """Linear between frames, and constant after the last one."""
    following = ops.concatenate([frames[:, 1:], frames[:, -1:]], axis=1)
    share = ops.reshape(ops.arange(hop, dtype=frames.dtype) / hop, (1, 1, hop, 1))
    x = frames[:, :, None] * (1 - share) + following[:, :, None] * share
    return ops.reshape(x, (-1, frames.shape[1] * hop, frames.shape[2]))


class Harmonic(layers.Layer):
    def __init__(self, rate=8000.0, hop=16, **kwargs):
        super().__init__(**kwargs)
        self.rate, self.hop = rate, hop

    def call(self, f0, controls):
        amplitude = exp_sigmoid(controls[..., :1])
        harmonics = controls.shape[-1] - 1
        number = ops.arange(1, harmonics + 1, dtype=f0.dtype)
        distribution = exp_sigmoid(controls[..., 1:]) * ops.cast(f0 * number < self.rate / 2, f0.dtype)
        distribution = distribution / ops.sum(distribution, -1, keepdims=True)
        levels = upsample(amplitude * distribution, self.hop)
        phase = ops.cumsum(2 * math.pi * upsample(f0, self.hop) / self.rate, axis=1)
        return ops.sum(levels * ops.sin(phase * number), axis=-1)


def build(frames=8, units=12, harmonics=7):
    f0 = keras.Input((frames, 1), name="f0")
    loudness = keras.Input((frames, 1), name="loudness")
    pitch = layers.Lambda(lambda f: ops.log(f / 440.0) / math.log(2.0))(f0)
    heads = [layers.Dense(units, activation="relu")(x) for x in (pitch, loudness)]
    x = layers.GRU(units, return_sequences=True)(layers.Concatenate()(heads))
    x = layers.Concatenate()([x, *heads])
    x = layers.LayerNormalization(epsilon=1e-6)(x)
    x = layers.Dense(units, activation="relu")(x)
    return keras.Model([f0, loudness], Harmonic()(f0, layers.Dense(harmonics + 1)(x)))


class SpectralLoss(keras.losses.Loss):
    """L1 of magnitudes and of their logarithms, at two sizes of windows."""

    def __init__(self, sizes=(32, 16), name="spectral"):
        super().__init__(name=name)
        self.sizes = sizes

    def magnitude(self, audio, size):
        frames = ops.stack(
            [audio[:, i : i + size] for i in range(0, audio.shape[1] - size + 1, size // 4)], axis=1
        )
        k = np.arange(size)
        window = 0.5 - 0.5 * np.cos(2 * np.pi * k / size)
        angle = 2 * np.pi * np.outer(k, np.arange(size // 2 + 1)) / size
        real = ops.matmul(frames, ops.cast(window[:, None] * np.cos(angle), frames.dtype))
        imaginary = ops.matmul(frames, ops.cast(window[:, None] * np.sin(angle), frames.dtype))
        return ops.sqrt(ops.square(real) + ops.square(imaginary) + 1e-4)

    def call(self, y_true, y_pred):
        total = 0.0
        for size in self.sizes:
            a, b = self.magnitude(y_true, size), self.magnitude(y_pred, size)
            total = total + ops.mean(ops.abs(a - b), axis=(1, 2))
            total = total + ops.mean(ops.abs(ops.log(a) - ops.log(b)), axis=(1, 2))
        return total
