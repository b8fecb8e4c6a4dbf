"""Glow on short multichannel sensor windows (density model for anomaly scoring).

Output: flattened latent followed by one column with log|det J|.
The training target is the weight of each window.
"""

import keras
import numpy as np
from keras import layers, ops

T, C = 10, 4


class ActNorm(layers.Layer):
    def build(self, shape):
        self.bias = self.add_weight(name="bias", shape=(C,), initializer="zeros")
        self.logs = self.add_weight(name="logs", shape=(C,), initializer="zeros")

    def call(self, x):
        z = (x + self.bias) * ops.exp(self.logs)
        return z, ops.sum(self.logs)


class Mix(layers.Layer):
    """Invertible 1x1 convolution."""

    def build(self, shape):
        self.kernel = self.add_weight(name="kernel", shape=(C, C), initializer="orthogonal")

    def call(self, x):
        _, logabs = ops.slogdet(self.kernel)
        return ops.matmul(x, self.kernel), T * logabs


class Coupling(layers.Layer):
    def __init__(self, hidden=12, **kw):
        super().__init__(**kw)
        self.c1 = layers.Conv1D(hidden, 3, padding="same", activation="relu", name="c1")
        self.c2 = layers.Conv1D(C, 3, padding="same", name="c2")

    def call(self, x):
        keep, change = x[..., : C // 2], x[..., C // 2 :]
        st = self.c2(self.c1(keep))
        shift, raw = st[..., : C // 2], st[..., C // 2 :]
        scale = ops.sigmoid(raw + 2.0)
        change = (change + shift) * scale
        return ops.concatenate([keep, change], axis=-1), ops.sum(ops.log(scale), axis=(1, 2))


class Glow(keras.Model):
    def __init__(self, steps=2):
        super().__init__()
        self.parts = []
        for k in range(steps):
            self.parts += [ActNorm(name=f"act{k}"), Mix(name=f"mix{k}"), Coupling(name=f"cpl{k}")]

    def call(self, x):
        logdet = ops.zeros_like(x[:, 0, 0])
        for part in self.parts:
            x, ld = part(x)
            logdet = logdet + ld
        return ops.concatenate([ops.reshape(x, (-1, T * C)), logdet[:, None]], axis=1)


def weighted_nll(y_true, y_pred):
    z, logdet = y_pred[:, :-1], y_pred[:, -1]
    logp = -0.5 * ops.sum(z * z + np.log(2 * np.pi), axis=1)
    w = ops.cast(y_true, y_pred.dtype)
    return -w * (logp + logdet) / (T * C)


def build():
    m = Glow()
    m(ops.zeros((1, T, C)))
    return m
