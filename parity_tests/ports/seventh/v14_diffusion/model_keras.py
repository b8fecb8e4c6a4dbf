"""The noise in a noisy 8x8 field, given the time: a small U-Net whose blocks are scaled and shifted by the time."""

import math

import keras
from keras import layers, ops


class TimeEmbedding(layers.Layer):
    def __init__(self, dim, **kwargs):
        super().__init__(**kwargs)
        self.half = dim // 2

    def call(self, t):
        rates = ops.exp(-math.log(10000) * ops.arange(self.half, dtype=t.dtype) / (self.half - 1))
        angle = 1000 * t[:, None] * rates[None]
        return ops.concatenate([ops.sin(angle), ops.cos(angle)], axis=-1)


def block(x, t, filters, rate=0.1):
    shortcut = x
    if x.shape[-1] != filters:
        shortcut = layers.Conv2D(filters, 1)(x)
    h = layers.GroupNormalization(groups=4, epsilon=1e-5)(x)
    h = layers.Conv2D(filters, 3, padding="same")(ops.silu(h))
    scale_shift = layers.Dense(2 * filters)(ops.silu(t))
    scale, shift = ops.split(scale_shift[:, None, None, :], 2, axis=-1)
    h = layers.GroupNormalization(groups=4, epsilon=1e-5)(h)
    h = ops.silu(h * (1 + scale) + shift)
    h = layers.Conv2D(filters, 3, padding="same")(layers.Dropout(rate)(h))
    return shortcut + h


def spatial_attention(x):
    _, height, width, channels = x.shape
    h = layers.GroupNormalization(groups=4, epsilon=1e-5)(x)
    q, k, v = (ops.reshape(layers.Dense(channels)(h), (-1, height * width, channels)) for _ in range(3))
    weights = ops.softmax(ops.matmul(q, ops.transpose(k, (0, 2, 1))) * channels**-0.5)
    h = ops.reshape(ops.matmul(weights, v), (-1, height, width, channels))
    return x + layers.Dense(channels)(h)


def build(width=8):
    x = keras.Input((8, 8, 2), name="x")
    t = keras.Input((), name="t")
    e = TimeEmbedding(16)(t)
    e = layers.Dense(24)(layers.Dense(24, activation="silu")(e))
    h0 = layers.Conv2D(width, 3, padding="same")(x)
    h1 = block(h0, e, width)
    h2 = layers.Conv2D(width, 3, strides=2)(layers.ZeroPadding2D(1)(h1))
    h2 = block(h2, e, 2 * width)
    h = spatial_attention(block(h2, e, 2 * width))
    h = block(layers.Concatenate()([h, h2]), e, 2 * width)
    h = layers.Conv2D(width, 3, padding="same")(layers.UpSampling2D(2)(h))
    h = block(layers.Concatenate()([h, h1]), e, width)
    h = ops.silu(layers.GroupNormalization(groups=4, epsilon=1e-5)(h))
    return keras.Model([x, t], layers.Conv2D(2, 3, padding="same", name="noise")(h))
