"""Photometric redshift: colours of galaxies in five bands -> z, a small residual MLP."""

import math

import keras
from keras import layers, ops

BANDS, WIDTH, PEAK, WARMUP, TOTAL = 5, 24, 0.05, 10, 60


class WarmupCosine(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        step = ops.cast(step, keras.backend.floatx())
        warm = PEAK * (step + 1.0) / WARMUP
        progress = ops.clip((step - WARMUP) / (TOTAL - WARMUP), 0.0, 1.0)
        return ops.where(step < WARMUP, warm, 0.5 * PEAK * (1.0 + ops.cos(math.pi * progress)))

    def get_config(self):
        return {}


def build():
    mags = keras.Input((BANDS,), name="mags")
    colours = layers.Lambda(lambda m: m[:, :-1] - m[:, 1:], name="colours")(mags)
    x = layers.Concatenate(name="inputs")([mags, colours])
    x = layers.Dense(WIDTH, activation="silu", name="proj")(x)
    for i in range(2):
        r = layers.Dense(WIDTH, activation="silu", name=f"res{i}_a")(x)
        r = layers.Dense(WIDTH, name=f"res{i}_b")(r)
        x = layers.Add(name=f"res{i}")([x, r])
    z = layers.Dense(1, activation="softplus", name="z")(x)
    return keras.Model(mags, z, name="photoz")


def optimizer():
    return keras.optimizers.SGD(learning_rate=WarmupCosine(), momentum=0.9)
