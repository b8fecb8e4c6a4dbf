"""A denoiser in the manner of EDM: a two-level U-Net between preconditioning factors, modulated by the noise level."""

import math

import keras
from keras import layers, ops

SIGMA_DATA = 0.5


def residual(x, emb, width, name):
    h = layers.GroupNormalization(4, name=f"{name}_norm1")(x)
    h = layers.Conv2D(width, 3, padding="same", name=f"{name}_conv1")(ops.silu(h))
    scale, shift = ops.split(layers.Dense(2 * width, name=f"{name}_film")(emb)[:, None, None, :], 2, axis=-1)
    h = layers.GroupNormalization(4, name=f"{name}_norm2")(h) * (1 + scale) + shift
    h = layers.Conv2D(width, 3, padding="same", name=f"{name}_conv2")(ops.silu(h))
    if x.shape[-1] != width:
        x = layers.Conv2D(width, 1, name=f"{name}_skip")(x)
    return (x + h) / math.sqrt(2)


def fourier(c):
    angles = c * ops.reshape(ops.exp2(ops.cast(ops.arange(6), c.dtype)), (1, 6))
    return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)


def build():
    noisy = keras.Input((8, 8, 2), name="noisy")
    sigma = keras.Input((1,), name="sigma")
    s = sigma[:, :, None, None]
    total = ops.square(s) + SIGMA_DATA**2
    emb = layers.Dense(20, activation="silu", name="emb2")(
        layers.Dense(20, activation="silu", name="emb1")(fourier(ops.log(sigma) / 4))
    )

    x = layers.Conv2D(8, 3, padding="same", name="stem")(noisy / ops.sqrt(total))
    fine = residual(x, emb, 8, "down")
    x = layers.Conv2D(12, 3, strides=2, padding="same", name="shrink")(fine)
    x = residual(x, emb, 12, "middle")
    x = layers.UpSampling2D(2, interpolation="nearest")(x)
    x = layers.Concatenate()([x, fine])
    x = residual(x, emb, 8, "up")
    x = layers.Conv2D(2, 3, padding="same", name="head")(
        ops.silu(layers.GroupNormalization(4, name="head_norm")(x))
    )
    clean = noisy * SIGMA_DATA**2 / total + x * (s * SIGMA_DATA) / ops.sqrt(total)
    return keras.Model([noisy, sigma], clean)
