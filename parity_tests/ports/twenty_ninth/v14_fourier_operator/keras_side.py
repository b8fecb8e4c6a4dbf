"""Neural operator for the 1-D heat/advection problem: initial profile -> profile later.

The Fourier part is written with explicit (truncated) DFT matrices.
"""

import keras
import numpy as np
from keras import ops

N, MODES, WIDTH = 24, 5, 6


def dft_matrices():
    n = np.arange(N)
    k = np.arange(MODES)
    phase = 2 * np.pi * np.outer(n, k) / N
    weight = np.where(k == 0, 1.0, 2.0) / N
    return (
        np.cos(phase),
        -np.sin(phase),
        np.cos(phase).T * weight[:, None],
        -np.sin(phase).T * weight[:, None],
    )


class Spectral(keras.layers.Layer):
    def build(self, shape):
        init = keras.initializers.RandomUniform(0.0, 1.0 / WIDTH)
        self.w_re = self.add_weight(name="w_re", shape=(MODES, WIDTH, WIDTH), initializer=init)
        self.w_im = self.add_weight(name="w_im", shape=(MODES, WIDTH, WIDTH), initializer=init)

    def call(self, x):
        fc, fs, ic, is_ = (ops.convert_to_tensor(m, dtype=x.dtype) for m in dft_matrices())
        re = ops.einsum("bnc,nk->bkc", x, fc)
        im = ops.einsum("bnc,nk->bkc", x, fs)
        out_re = ops.einsum("bkc,kcd->bkd", re, self.w_re) - ops.einsum("bkc,kcd->bkd", im, self.w_im)
        out_im = ops.einsum("bkc,kcd->bkd", re, self.w_im) + ops.einsum("bkc,kcd->bkd", im, self.w_re)
        return ops.einsum("bkd,kn->bnd", out_re, ic) + ops.einsum("bkd,kn->bnd", out_im, is_)


class Grid(keras.layers.Layer):
    """Append the coordinate in [0, 1)."""

    def call(self, u):
        g = ops.arange(N, dtype=u.dtype) / N
        g = ops.broadcast_to(g[None, :, None], ops.shape(u[..., None]))
        return ops.concatenate([u[..., None], g], axis=-1)


def build():
    u0 = keras.Input((N,), name="x")
    h = Grid(name="grid")(u0)
    h = keras.layers.Dense(WIDTH, name="lift")(h)
    for i in range(2):
        s = Spectral(name=f"spec{i}")(h)
        p = keras.layers.Dense(WIDTH, name=f"point{i}")(h)
        h = keras.layers.Add()([s, p])
        if i == 0:
            h = keras.layers.Activation("gelu")(h)
    h = keras.layers.Dense(16, activation="gelu", name="proj1")(h)
    h = keras.layers.Dense(1, name="proj2")(h)
    return keras.Model(u0, keras.layers.Reshape((N,))(h))


def make_optimizer():
    return keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True, global_clipnorm=0.7)
