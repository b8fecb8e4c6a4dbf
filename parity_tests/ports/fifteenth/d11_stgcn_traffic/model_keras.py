"""STGCN: speed at the detectors of a motorway network in 15 minutes, from the last hour."""

import keras
import numpy as np
from keras import layers, ops

NODES, STEPS, ORDER = 15, 12, 3


def scaled_laplacian(seed=3):
    """2 L / lambda_max - I of a fixed random road network."""
    draw = np.random.default_rng(seed)
    place = draw.uniform(size=(NODES, 2))
    d2 = ((place[:, None] - place[None]) ** 2).sum(-1)
    w = np.exp(-d2 / 0.1) * (d2 < 0.2)
    np.fill_diagonal(w, 0.0)
    degree = w.sum(1)
    inverse = np.where(degree > 0, 1 / np.sqrt(np.maximum(degree, 1e-12)), 0.0)
    lap = np.eye(NODES) - inverse[:, None] * w * inverse[None]
    return 2 * lap / np.linalg.eigvalsh(lap).max() - np.eye(NODES)


def chebyshev(lap):
    basis = [np.eye(NODES), lap]
    for _ in range(2, ORDER):
        basis.append(2 * lap @ basis[-1] - basis[-2])
    return np.stack(basis)


class TemporalGate(layers.Layer):
    """(P + cropped input) * sigmoid(Q), a causal convolution of three steps."""

    def __init__(self, filters, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters
        self.conv = layers.Conv2D(2 * filters, (3, 1))

    def call(self, x):
        p, q = ops.split(self.conv(x), 2, axis=-1)
        skip = x[:, 2:]
        missing = self.filters - x.shape[-1]
        if missing > 0:
            skip = ops.pad(skip, [(0, 0), (0, 0), (0, 0), (0, missing)])
        return (p + skip) * ops.sigmoid(q)


class ChebConv(layers.Layer):
    def __init__(self, filters, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters
        self.basis = chebyshev(scaled_laplacian())

    def build(self, shape):
        self.theta = self.add_weight(
            shape=(ORDER, shape[-1], self.filters), initializer="glorot_uniform", name="theta"
        )
        self.bias = self.add_weight(shape=(self.filters,), initializer="zeros", name="bias")

    def call(self, x):
        basis = ops.cast(self.basis, x.dtype)
        y = ops.einsum("knm,btmc,kcd->btnd", basis, x, self.theta) + self.bias
        return ops.relu(y + x)


def block(x, filters):
    x = TemporalGate(filters)(x)
    x = ChebConv(filters)(x)
    x = TemporalGate(filters)(x)
    x = layers.LayerNormalization(axis=[2, 3])(x)
    return layers.Dropout(0.1)(x)


def build():
    x = inputs = keras.Input((STEPS, NODES, 2))
    x = block(x, 12)
    x = block(x, 16)
    x = layers.Conv2D(16, (4, 1), activation="sigmoid")(x)
    x = layers.Dense(1)(x)
    x = layers.Reshape((NODES,))(x)
    model = keras.Model(inputs, x)
    model.compile(keras.optimizers.RMSprop(1e-3), loss="mae")
    return model
