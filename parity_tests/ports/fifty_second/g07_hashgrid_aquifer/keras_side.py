"""Salinity in an aquifer as a field over position and season: multiresolution hash encoding, small network."""

import itertools

import keras
import numpy as np
from keras import layers, ops

LEVELS = (4, 7, 12, 20)
SLOTS = 512
FEATURES = 3
PRIMES = np.array([1, 2654435761, 805459861], np.int64)
CORNERS = np.array(list(itertools.product((0, 1), repeat=3)), np.int64)


class HashGrid(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)

    def build(self, shape):
        self.table = self.add_weight(
            shape=(len(LEVELS), SLOTS, FEATURES),
            initializer=keras.initializers.RandomUniform(-0.3, 0.3),
            name="table",
        )
        self.built = True

    def slots(self, corner, resolution):
        side = resolution + 1
        if side**3 <= SLOTS:
            return ops.sum(corner * np.array([side * side, side, 1], np.int64), axis=-1)
        h = corner * PRIMES
        h = ops.bitwise_xor(ops.bitwise_xor(h[..., 0], h[..., 1]), h[..., 2])
        return ops.mod(h, SLOTS)

    def call(self, position):
        out = []
        for level, resolution in enumerate(LEVELS):
            scaled = ops.expand_dims(position * resolution, 1)
            cell = ops.floor(scaled)
            offset = scaled - cell
            corner = ops.cast(cell, "int64") + CORNERS
            share = ops.prod(ops.where(CORNERS == 1, offset, 1.0 - offset), axis=-1, keepdims=True)
            values = ops.take(self.table[level], self.slots(corner, resolution), axis=0)
            out.append(ops.sum(share * values, axis=1))
        return ops.concatenate(out, axis=-1)


class Modulated(layers.Layer):
    """Dense layer, scaled and shifted by the season."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.dense = layers.Dense(units, name="dense")
        self.scale = layers.Embedding(4, units, name="scale")
        self.shift = layers.Embedding(4, units, name="shift")

    def call(self, x, season):
        return ops.relu((1.0 + self.scale(season)) * self.dense(x) + self.shift(season))


class Aquifer(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.grid = HashGrid(name="grid")
        self.first = Modulated(32, name="first")
        self.second = Modulated(32, name="second")
        self.salinity = layers.Dense(1, name="salinity")

    def call(self, inputs):
        position, season = inputs["position"], inputs["season"]
        waves = ops.concatenate(
            [f(np.pi * 2**k * position) for k in range(3) for f in (ops.sin, ops.cos)], axis=-1
        )
        x = ops.concatenate([self.grid(position), waves], axis=-1)
        x = self.first(x, season)
        x = x + self.second(x, season)
        return self.salinity(x)


def build():
    return Aquifer(name="aquifer")
