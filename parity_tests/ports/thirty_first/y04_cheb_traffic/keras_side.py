"""STGCN-style traffic forecaster on a fixed sensor graph."""

import keras
import numpy as np
from keras import layers, ops

N, T, KS = 8, 12, 3


def adjacency(n=N):
    rng = np.random.default_rng(5)
    pos = rng.uniform(0, 1, size=(n, 2))
    d = np.sqrt(((pos[:, None] - pos[None]) ** 2).sum(-1))
    w = np.exp(-((d / 0.4) ** 2))
    w[w < 0.1] = 0.0
    np.fill_diagonal(w, 0.0)
    return w


def scaled_laplacian(w):
    deg = np.maximum(w.sum(1), 1e-8)
    dinv = 1.0 / np.sqrt(deg)
    lap = np.eye(len(w)) - dinv[:, None] * w * dinv[None, :]
    lam_max = np.linalg.eigvalsh(lap).max()
    return 2.0 * lap / lam_max - np.eye(len(w))


def cheb_polynomials(w, order):
    lt = scaled_laplacian(w)
    polys = [np.eye(len(w)), lt]
    while len(polys) < order:
        polys.append(2.0 * lt @ polys[-1] - polys[-2])
    return np.stack(polys[:order])


class ChebConv(layers.Layer):
    def __init__(self, units, polys, **kw):
        super().__init__(**kw)
        self.units = units
        self.polys = polys

    def build(self, shape):
        self.theta = self.add_weight(
            name="theta", shape=(len(self.polys), shape[-1], self.units), initializer="glorot_uniform"
        )
        self.bias = self.add_weight(name="bias", shape=(self.units,), initializer="zeros")

    def call(self, x):  # (B, T, N, C)
        basis = ops.cast(self.polys, x.dtype)
        z = ops.einsum("kij,btjc->btkic", basis, x)
        return ops.einsum("btkic,kco->btio", z, self.theta) + self.bias


class GatedTemporal(layers.Layer):
    """GLU over time, 'valid'; the input is cropped to the outputs' time stamps."""

    def __init__(self, ch, ks=KS, **kw):
        super().__init__(**kw)
        self.ks = ks
        self.conv = layers.Conv2D(2 * ch, (ks, 1), padding="valid")

    def build(self, shape):
        self.conv.build(shape)

    def call(self, x):
        p, q = ops.split(self.conv(x), 2, axis=-1)
        return (p + x[:, self.ks - 1 :]) * ops.sigmoid(q)


def build(ch=8, order=3):
    polys = cheb_polynomials(adjacency(), order)
    inp = keras.Input((T, N))
    x = layers.Reshape((T, N, 1))(inp)
    x = layers.Dense(ch, name="lift")(x)
    x = GatedTemporal(ch, name="temporal_1")(x)
    g = ChebConv(ch, polys, name="spatial")(x)
    x = layers.ReLU()(layers.Add()([g, x]))
    x = GatedTemporal(ch, name="temporal_2")(x)
    x = layers.LayerNormalization(axis=[2, 3], name="ln")(x)
    x = layers.Conv2D(16, (T - 2 * (KS - 1), 1), activation="relu", name="collapse")(x)
    x = layers.Dense(1, name="readout")(x)
    out = layers.Reshape((N,))(x)
    return keras.Model(inp, out)


def loss(y_true, y_pred):
    """MAE over the sensors that reported (0 = missing)."""
    mask = ops.cast(ops.not_equal(y_true, 0), y_pred.dtype)
    mask = mask / ops.mean(mask)
    return ops.mean(mask * ops.abs(y_pred - y_true))
