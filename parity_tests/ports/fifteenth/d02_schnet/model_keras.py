"""SchNet: energies of small molecules from atomic numbers and positions (padded with z = 0)."""

import math

import keras
import numpy as np
from keras import layers, ops

CUTOFF, GAUSSIANS, FEATURES = 4.0, 20, 24


def shifted_softplus(x):
    return ops.softplus(x) - math.log(2.0)


class Distances(layers.Layer):
    def call(self, positions):
        delta = ops.expand_dims(positions, 2) - ops.expand_dims(positions, 1)
        return ops.sqrt(ops.sum(ops.square(delta), axis=-1) + 1e-10)


class GaussianBasis(layers.Layer):
    def build(self, shape):
        self.centers = np.linspace(0.0, CUTOFF, GAUSSIANS)
        self.gamma = 0.5 / (self.centers[1] - self.centers[0]) ** 2

    def call(self, d):
        c = ops.cast(self.centers, d.dtype)
        return ops.exp(-self.gamma * ops.square(ops.expand_dims(d, -1) - c))


class PairMask(layers.Layer):
    """Cosine cutoff between real, different atoms."""

    def call(self, z, d):
        real = ops.cast(z > 0, d.dtype)
        pair = ops.expand_dims(real, 2) * ops.expand_dims(real, 1)
        pair = pair * (1.0 - ops.eye(z.shape[1], dtype=d.dtype))
        soft = 0.5 * (ops.cos(d * math.pi / CUTOFF) + 1.0) * ops.cast(d < CUTOFF, d.dtype)
        return pair * soft


class Interaction(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.filter1 = layers.Dense(FEATURES, activation=shifted_softplus)
        self.filter2 = layers.Dense(FEATURES, activation=shifted_softplus)
        self.inward = layers.Dense(FEATURES, use_bias=False)
        self.outward = layers.Dense(FEATURES, activation=shifted_softplus)
        self.final = layers.Dense(FEATURES)

    def call(self, h, basis, weight):
        w = self.filter2(self.filter1(basis)) * ops.expand_dims(weight, -1)
        neighbours = ops.expand_dims(self.inward(h), 1)
        message = ops.sum(neighbours * w, axis=2)
        return h + self.final(self.outward(message))


class MaskedSum(layers.Layer):
    def call(self, per_atom, z):
        return ops.sum(per_atom * ops.expand_dims(ops.cast(z > 0, per_atom.dtype), -1), axis=1)


def build():
    z = keras.Input((9,), dtype="int32", name="z")
    positions = keras.Input((9, 3), name="positions")
    d = Distances()(positions)
    basis = GaussianBasis()(d)
    weight = PairMask()(z, d)
    h = layers.Embedding(10, FEATURES, name="species")(z)
    for i in range(3):
        h = Interaction(name=f"interaction_{i}")(h, basis, weight)
    atom = layers.Dense(12, activation=shifted_softplus)(h)
    atom = layers.Dense(1)(atom)
    reference = layers.Embedding(10, 1, name="reference")(z)
    energy = MaskedSum()(layers.Add()([atom, reference]), z)
    model = keras.Model([z, positions], energy)
    schedule = keras.optimizers.schedules.ExponentialDecay(1e-3, 10, 0.9, staircase=True)
    model.compile(keras.optimizers.Adam(schedule), loss="mse")
    return model
