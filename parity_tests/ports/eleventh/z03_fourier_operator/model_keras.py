"""Fourier neural operator in one dimension: from a source and a position to the field at a later time."""

import keras
from keras import layers, ops

POINTS, WIDTH, MODES = 48, 16, 7


class SpectralConv(layers.Layer):
    def __init__(self, modes, **kwargs):
        super().__init__(**kwargs)
        self.modes = modes

    def build(self, shape):
        size, init = (self.modes, shape[-1], shape[-1]), keras.initializers.RandomNormal(stddev=0.08)
        self.real = self.add_weight(shape=size, initializer=init, name="real")
        self.imag = self.add_weight(shape=size, initializer=init, name="imag")

    def call(self, x):
        points = x.shape[1]
        re, im = ops.rfft(ops.transpose(x, (0, 2, 1)))
        re, im = re[..., : self.modes], im[..., : self.modes]
        out_re = ops.einsum("nik,kio->nok", re, self.real) - ops.einsum("nik,kio->nok", im, self.imag)
        out_im = ops.einsum("nik,kio->nok", re, self.imag) + ops.einsum("nik,kio->nok", im, self.real)
        rest = [[0, 0], [0, 0], [0, points // 2 + 1 - self.modes]]
        y = ops.irfft((ops.pad(out_re, rest), ops.pad(out_im, rest)), fft_length=points)
        return ops.transpose(y, (0, 2, 1))


def build():
    inputs = keras.Input((POINTS, 2), name="x")
    h = layers.Dense(WIDTH, name="lift")(inputs)
    for i in range(3):
        spectral = SpectralConv(MODES, name=f"spectral{i}")(h)
        local = layers.Dense(WIDTH, name=f"local{i}")(h)
        h = layers.Add()([spectral, local])
        if i < 2:
            h = layers.Activation("silu")(h)
    h = layers.Dense(32, activation="silu", name="project")(h)
    return keras.Model(inputs, layers.Dense(1, name="field")(h), name="fno")


def relative_l2(y_true, y_pred):
    error = ops.sqrt(ops.sum(ops.square(y_true - y_pred), axis=(1, 2)))
    return error / ops.sqrt(ops.sum(ops.square(y_true), axis=(1, 2)))
