"""Keyword spotting from raw audio: log filterbank front end by matrices + depthwise separable 1-D convs."""

import keras
import numpy as np
from keras import layers, ops

SAMPLES, WIN, HOP, BANDS, CLASSES = 192, 32, 16, 10, 5
CLASS_WEIGHT = np.array([0.4, 1.0, 1.6, 1.0, 2.2])


def filterbank(bins, bands):
    edges = np.linspace(0.0, 1.0, bands + 2) ** 1.5 * (bins - 1)
    f = np.arange(bins)[:, None]
    lo, mid, hi = edges[:-2], edges[1:-1], edges[2:]
    up = (f - lo) / np.maximum(mid - lo, 1e-3)
    down = (hi - f) / np.maximum(hi - mid, 1e-3)
    return np.maximum(0.0, np.minimum(up, down)) + 0.02


class LogFilterbank(layers.Layer):
    def __init__(self, **kw):
        super().__init__(**kw)
        n_frames = 1 + (SAMPLES - WIN) // HOP
        self.index = np.arange(WIN)[None] + HOP * np.arange(n_frames)[:, None]
        window = np.hanning(WIN)
        k = np.arange(WIN // 2 + 1)[None]
        t = np.arange(WIN)[:, None]
        ang = 2.0 * np.pi * t * k / WIN
        self.cos_m = window[:, None] * np.cos(ang)
        self.sin_m = window[:, None] * np.sin(ang)
        self.fb = filterbank(WIN // 2 + 1, BANDS)

    def call(self, wave):
        frames = ops.take(wave, self.index, axis=1)
        re = ops.matmul(frames, ops.cast(self.cos_m, wave.dtype))
        im = ops.matmul(frames, ops.cast(self.sin_m, wave.dtype))
        feats = ops.log(ops.matmul(re * re + im * im, ops.cast(self.fb, wave.dtype)) + 1e-3)
        return feats - ops.mean(feats, axis=1, keepdims=True)


def build():
    wave = keras.Input((SAMPLES,), name="wave")
    x = LogFilterbank(name="frontend")(wave)
    x = layers.Conv1D(16, 3, padding="same", use_bias=False, name="conv0")(x)
    x = layers.BatchNormalization(momentum=0.9, name="bn0")(x)
    x = layers.ReLU()(x)
    for i, filters in enumerate((20, 24), start=1):
        x = layers.SeparableConv1D(filters, 3, padding="same", use_bias=False, name=f"sep{i}")(x)
        x = layers.BatchNormalization(momentum=0.9, name=f"bn{i}")(x)
        x = layers.ReLU()(x)
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(wave, layers.Dense(CLASSES, name="keyword")(x))


def loss(y_true, y_pred):
    y = ops.cast(ops.reshape(y_true, (-1,)), "int32")
    w = ops.take(ops.cast(CLASS_WEIGHT, y_pred.dtype), y)
    return w * ops.sparse_categorical_crossentropy(y, y_pred, from_logits=True)
