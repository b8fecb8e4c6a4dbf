"""DDPM noise predictor on 8x8 images; clean image, noise and step index are inputs."""

import math

import keras
import numpy as np
from keras import layers, ops

STEPS, DIM = 100, 16
BETAS = np.linspace(1e-3, 0.05, STEPS)
ALPHA_BAR = np.cumprod(1.0 - BETAS)


class Diffuse(layers.Layer):
    def call(self, x0, noise, t):
        abar = ops.convert_to_tensor(ALPHA_BAR, dtype=self.compute_dtype)
        a = ops.reshape(ops.take(abar, t), (-1, 1, 1, 1))
        return ops.sqrt(a) * x0 + ops.sqrt(1.0 - a) * noise


class TimeEmbedding(layers.Layer):
    def call(self, t):
        half = DIM // 2
        i = ops.cast(ops.arange(half), self.compute_dtype)
        freqs = ops.exp(-math.log(10000.0) * i / (half - 1))
        ang = ops.cast(t, self.compute_dtype)[:, None] * freqs[None]
        return ops.concatenate([ops.sin(ang), ops.cos(ang)], axis=-1)


def film_block(h, emb, filters, name):
    h = layers.Conv2D(filters, 3, padding="same", name=name + "_conv")(h)
    h = layers.GroupNormalization(4, epsilon=1e-5, name=name + "_gn")(h)
    film = layers.Dense(2 * filters, name=name + "_film")(emb)
    scale, shift = ops.split(film[:, None, None, :], 2, axis=-1)
    return layers.Activation("silu")(h * (1.0 + scale) + shift)


def build():
    x0 = keras.Input((8, 8, 1), name="x")
    noise = keras.Input((8, 8, 1), name="noise")
    t = keras.Input((), dtype="int64", name="t")
    xt = Diffuse()(x0, noise, t)
    emb = layers.Dense(32, activation="silu", name="time1")(TimeEmbedding()(t))
    emb = layers.Dense(32, activation="silu", name="time2")(emb)
    h1 = film_block(xt, emb, 12, "down")
    h = layers.Conv2D(16, 3, strides=2, padding="same", name="shrink")(h1)
    h = film_block(h, emb, 16, "mid")
    h = layers.Conv2DTranspose(12, 4, strides=2, padding="same", name="grow")(h)
    h = film_block(layers.Concatenate()([h, h1]), emb, 12, "up")
    return keras.Model([x0, noise, t], layers.Conv2D(1, 3, padding="same", name="eps")(h))
