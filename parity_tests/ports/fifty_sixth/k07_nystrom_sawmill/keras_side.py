"""Wear of a saw blade (four grades) from 96 samples of two accelerometers: a small Nystromformer
(Xiong et al. 2021), landmarks as means of segments, pseudo-inverse by iteration."""

import keras
import numpy as np
from keras import layers, ops

LENGTH, AXES = 96, 2
DIM, HEADS, LANDMARKS, TURNS = 16, 2, 6, 3


def pseudo_inverse(a):
    """Razavi et al. 2014, from a scaled transpose."""
    eye = ops.eye(a.shape[-1], dtype=a.dtype)
    columns = ops.max(ops.sum(ops.absolute(a), axis=-2), axis=-1)
    rows = ops.max(ops.sum(ops.absolute(a), axis=-1), axis=-1)
    z = ops.swapaxes(a, -1, -2) / (columns * rows)[..., None, None]
    for _ in range(TURNS):
        az = ops.matmul(a, z)
        z = 0.25 * ops.matmul(z, 13.0 * eye - ops.matmul(az, 15.0 * eye - ops.matmul(az, 7.0 * eye - az)))
    return z


class NystromAttention(layers.Layer):
    def __init__(self, dim, heads, landmarks, **kwargs):
        super().__init__(**kwargs)
        self.heads, self.landmarks = heads, landmarks
        self.width = dim // heads
        self.project = {
            kind: layers.EinsumDense("bld,dhw->bhlw", (heads, None, self.width), bias_axes="hw", name=kind)
            for kind in ("query", "key", "value")
        }
        self.merge = layers.EinsumDense("bhlw,hwd->bld", (None, dim), bias_axes="d", name="merge")

    def build(self, shape):
        for layer in self.project.values():
            layer.build(shape)
        self.merge.build((shape[0], self.heads, shape[1], self.width))
        self.taps = self.add_weight(
            name="taps", shape=(5, self.heads), initializer=keras.initializers.RandomNormal(stddev=0.2)
        )

    def call(self, x):
        q, k, v = (self.project[kind](x) for kind in ("query", "key", "value"))
        q = q * self.width**-0.5
        n = x.shape[1]
        segments = (-1, self.heads, self.landmarks, n // self.landmarks, self.width)
        q_mean = ops.mean(ops.reshape(q, segments), axis=3)
        k_mean = ops.mean(ops.reshape(k, segments), axis=3)
        down = ops.softmax(ops.matmul(q, ops.swapaxes(k_mean, -1, -2)))
        middle = ops.softmax(ops.matmul(q_mean, ops.swapaxes(k_mean, -1, -2)))
        up = ops.softmax(ops.matmul(q_mean, ops.swapaxes(k, -1, -2)))
        y = ops.matmul(ops.matmul(down, pseudo_inverse(middle)), ops.matmul(up, v))
        padded = ops.pad(v, ((0, 0), (0, 0), (2, 2), (0, 0)))
        for i in range(5):
            y = y + self.taps[i][:, None, None] * padded[:, :, i : i + n]
        return self.merge(y)


class Rms(layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(name="scale", shape=(shape[-1],), initializer="ones")

    def call(self, x):
        return x * ops.rsqrt(ops.mean(ops.square(x), axis=-1, keepdims=True) + 1e-6) * self.scale


def block(x, name):
    y = Rms(name=f"{name}_rms_a")(x)
    x = x + NystromAttention(DIM, HEADS, LANDMARKS, name=f"{name}_attention")(y)
    y = Rms(name=f"{name}_rms_b")(x)
    y = layers.Dense(24, activation=lambda t: keras.activations.gelu(t, approximate=True), name=f"{name}_up")(
        y
    )
    return x + layers.Dense(DIM, name=f"{name}_down")(y)


def build():
    vibration = keras.Input((LENGTH, AXES), name="vibration")
    x = layers.Conv1D(DIM, 4, strides=2, padding="same", name="patches")(vibration)
    place = np.arange(LENGTH // 2)[:, None] * 0.25 ** np.arange(DIM)
    x = x + 0.5 * np.sin(place).astype(np.float32)
    for name in ("first", "second"):
        x = block(x, name)
    x = Rms(name="rms")(x)
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(vibration, layers.Dense(4, name="wear")(x))
