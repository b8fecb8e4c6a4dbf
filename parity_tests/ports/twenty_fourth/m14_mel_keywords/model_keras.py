"""Keyword spotting from raw audio: log-mel front end, dilated convolutions.

The front end is made of matrix products so that it runs on the edge compiler,
which has no FFT.
"""

import keras
import numpy as np
from keras import layers, ops

SAMPLES, RATE = 800, 4000
FRAME, HOP, MELS = 128, 64, 16
FRAMES = 1 + (SAMPLES - FRAME) // HOP
KEYWORDS = 6


def mel_matrix():
    """Triangular filters, (FRAME // 2 + 1, MELS)."""

    def to_mel(f):
        return 2595.0 * np.log10(1.0 + f / 700.0)

    mels = np.linspace(to_mel(60.0), to_mel(RATE / 2), MELS + 2)
    edges = 700.0 * (10.0 ** (mels / 2595.0) - 1.0)
    freqs = np.arange(FRAME // 2 + 1) * RATE / FRAME
    low, mid, high = edges[:-2], edges[1:-1], edges[2:]
    up = (freqs[:, None] - low) / (mid - low)
    down = (high - freqs[:, None]) / (high - mid)
    return np.maximum(0.0, np.minimum(up, down))


class LogMel(layers.Layer):
    """Pre-emphasis, Hann frames, power spectrum by DFT matrix, log-mel, CMN."""

    def build(self, input_shape):
        n = np.arange(FRAME)
        window = 0.5 - 0.5 * np.cos(2.0 * np.pi * n / FRAME)
        angle = 2.0 * np.pi * np.outer(n, np.arange(FRAME // 2 + 1)) / FRAME
        self.cos = window[:, None] * np.cos(angle)
        self.sin = window[:, None] * np.sin(angle)
        self.mel = mel_matrix()
        starts = HOP * np.arange(FRAMES)[:, None]
        self.index = (starts + n[None, :]).astype("int32")

    def call(self, wave):
        wave = ops.concatenate([wave[:, :1], wave[:, 1:] - 0.97 * wave[:, :-1]], axis=1)
        frames = ops.take(wave, self.index, axis=1)
        real = ops.matmul(frames, ops.cast(self.cos, wave.dtype))
        imag = ops.matmul(frames, ops.cast(self.sin, wave.dtype))
        power = ops.square(real) + ops.square(imag)
        log_mel = ops.log(ops.matmul(power, ops.cast(self.mel, wave.dtype)) + 1e-3)
        return log_mel - ops.mean(log_mel, axis=1, keepdims=True)


class AttentionPool(layers.Layer):
    """Weighted mean over time with learned scores."""

    def build(self, input_shape):
        self.score = layers.Dense(1, use_bias=False, name="score")
        self.score.build(input_shape)

    def call(self, x):
        return ops.sum(ops.softmax(self.score(x), axis=1) * x, axis=1)


def build():
    wave = keras.Input((SAMPLES,), name="wave")
    x = LogMel(name="front_end")(wave)
    x = layers.Conv1D(16, 3, padding="causal", activation="relu", name="conv0")(x)
    for i, dilation in enumerate((1, 2, 4), start=1):
        y = layers.SeparableConv1D(16, 3, padding="same", dilation_rate=dilation, name=f"conv{i}")(x)
        y = layers.Activation("silu", name=f"act{i}")(y)
        x = layers.Add(name=f"add{i}")([x, y])
    x = AttentionPool(name="pool")(x)
    return keras.Model(wave, layers.Dense(KEYWORDS, name="keyword")(x), name="kws")
