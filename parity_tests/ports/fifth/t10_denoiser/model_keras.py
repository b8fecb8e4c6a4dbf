"""Denoiser of a diffusion model for short two-channel gestures."""

import math

import keras
from keras import layers, ops

LENGTH, CHANNELS, STEPS, KINDS, WIDTH = 32, 2, 200, 6, 24


class TimeFeatures(layers.Layer):
    """Sines and cosines of the step, periods from 2 pi to 2 pi times `longest`."""

    def __init__(self, size, longest=1000.0, **kwargs):
        super().__init__(**kwargs)
        self.size, self.longest = size, longest

    def call(self, step):
        half = self.size // 2
        rates = ops.exp(-math.log(self.longest) * ops.arange(half, dtype=self.compute_dtype) / (half - 1))
        angle = ops.cast(step, self.compute_dtype)[:, None] * rates[None]
        return ops.concatenate([ops.sin(angle), ops.cos(angle)], axis=-1)


def residual(x, condition, filters, dilation, name):
    y = layers.GroupNormalization(4, epsilon=1e-5, name=f"{name}_norm1")(x)
    y = layers.Conv1D(filters, 3, padding="same", dilation_rate=dilation, name=f"{name}_conv1")(
        layers.Activation("silu")(y)
    )
    film = layers.Dense(2 * filters, name=f"{name}_film")(layers.Activation("silu")(condition))
    scale, shift = ops.split(ops.expand_dims(film, 1), 2, axis=-1)
    y = layers.GroupNormalization(4, epsilon=1e-5, name=f"{name}_norm2")(y) * (1 + scale) + shift
    y = layers.Conv1D(filters, 3, padding="same", name=f"{name}_conv2")(layers.Activation("silu")(y))
    if x.shape[-1] != filters:
        x = layers.Conv1D(filters, 1, name=f"{name}_skip")(x)
    return x + y


def build():
    noisy = keras.Input((LENGTH, CHANNELS), name="noisy")
    step = keras.Input((), dtype="int32", name="step")
    kind = keras.Input((), dtype="int32", name="kind")
    c = TimeFeatures(32, name="time")(step)
    c = layers.Dense(48, activation="silu", name="time_in")(c)
    c = layers.Dense(48, name="time_out")(c) + layers.Dense(48, use_bias=False, name="kinds")(
        ops.one_hot(kind, KINDS)
    )
    x = layers.Conv1D(WIDTH, 3, padding="same", name="first")(noisy)
    a = residual(x, c, WIDTH, 1, "r1")
    b = layers.AveragePooling1D(2)(a)
    b = residual(b, c, 32, 2, "r2")
    b = layers.UpSampling1D(2)(b)
    x = residual(ops.concatenate([a, b], axis=-1), c, WIDTH, 1, "r3")
    x = layers.GroupNormalization(4, epsilon=1e-5, name="last_norm")(x)
    noise = layers.Conv1D(CHANNELS, 3, padding="same", name="noise")(layers.Activation("silu")(x))
    return keras.Model([noisy, step, kind], noise, name="denoiser")


def optimizer():
    adam = keras.optimizers.AdamW(2e-3, weight_decay=0.05, beta_2=0.99)
    adam.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    return adam
