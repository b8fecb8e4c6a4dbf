"""Fourier neural operator for waves on a ring of shallow water: height and speed now -> a while later."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

POINTS, FIELDS, WIDTH, MODES, DEPTH = 24, 2, 8, 6, 3


def gelu(x):
    return keras.activations.gelu(x, approximate=True)


@keras.saving.register_keras_serializable("waves")
class SpectralConv(layers.Layer):
    def build(self, shape):
        init = keras.initializers.RandomNormal(stddev=1 / WIDTH)
        self.real = self.add_weight(name="real", shape=(MODES, WIDTH, WIDTH), initializer=init)
        self.imag = self.add_weight(name="imag", shape=(MODES, WIDTH, WIDTH), initializer=init)

    def call(self, x):  # (N, points, width)
        f = tf.signal.rfft(tf.transpose(x, (0, 2, 1)))[:, :, :MODES]
        f = tf.einsum(
            "bim,mio->bom", f, tf.complex(tf.convert_to_tensor(self.real), tf.convert_to_tensor(self.imag))
        )
        f = tf.pad(f, [[0, 0], [0, 0], [0, POINTS // 2 + 1 - MODES]])
        return tf.transpose(tf.signal.irfft(f, fft_length=[POINTS]), (0, 2, 1))


@keras.saving.register_keras_serializable("waves")
class Place(layers.Layer):
    """Adds where on the ring a point is."""

    def call(self, x):
        a = np.arange(POINTS) * 2 * np.pi / POINTS
        grid = ops.cast(np.stack([np.sin(a), np.cos(a)], -1), x.dtype)
        grid = ops.broadcast_to(grid, (ops.shape(x)[0], POINTS, 2))
        return ops.concatenate([x, grid], axis=-1)


def build():
    water = keras.Input((POINTS, FIELDS), name="water")
    x = layers.Dense(WIDTH, name="lift")(Place(name="place")(water))
    for i in range(DEPTH):
        s = SpectralConv(name=f"spectral{i}")(x)
        w = layers.Conv1D(WIDTH, 1, name=f"local{i}")(x)
        x = layers.Add(name=f"sum{i}")([s, w])
        if i < DEPTH - 1:
            x = layers.Activation(gelu, name=f"gelu{i}")(x)
    x = layers.Dense(16, activation=gelu, name="project")(x)
    x = layers.Dense(FIELDS, name="change")(x)
    return keras.Model(water, layers.Add(name="later")([water, x]), name="waves")


def relative(later, predicted):
    """Relative L2 norm of the error of a sample, and of its slope."""

    def norm(v):
        return ops.sqrt(ops.sum(ops.square(v), axis=(1, 2)))

    def slope(v):
        return ops.roll(v, -1, axis=1) - v

    e = predicted - later
    return ops.mean(norm(e) / norm(later) + 0.3 * norm(slope(e)) / norm(slope(later)))


def optimizer():
    rate = keras.optimizers.schedules.CosineDecay(
        1e-4, decay_steps=40, alpha=0.05, warmup_target=5e-3, warmup_steps=5
    )
    return keras.optimizers.Adam(rate)
