"""PaiNN on small molecules: equivariant messages over all pairs; dipole from charges and atomic dipoles, and the energy."""

import keras
import numpy as np
from keras import layers, ops

ATOMS, KINDS, FEATURES, RADIAL, LAYERS = 10, 10, 24, 12, 3
CUTOFF = 4.0
REFERENCE = np.array([0, -0.6, 0, 0, 0, 0, -38.07, -54.75, -75.22, -99.87], np.float32)  # by atomic number


class Geometry(layers.Layer):
    """Pairs within the cutoff: unit vectors, radial basis, and the smooth cutoff (0 for what is no pair)."""

    def call(self, numbers, positions):
        there = numbers > 0
        pair = there[:, :, None] & there[:, None] & ops.logical_not(ops.eye(ATOMS, dtype="bool"))[None]
        vector = positions[:, None] - positions[:, :, None]  # from i to j
        square = ops.sum(ops.square(vector), axis=-1)
        distance = ops.sqrt(ops.where(pair, square, 1.0))
        pair = pair & (distance < CUTOFF)
        wave = ops.arange(1, RADIAL + 1, dtype=positions.dtype) * (np.pi / CUTOFF)
        radial = ops.sin(distance[..., None] * wave) / distance[..., None]
        smooth = 0.5 * (ops.cos(distance * (np.pi / CUTOFF)) + 1.0)
        smooth = ops.where(pair, smooth, ops.zeros_like(smooth))
        return vector / distance[..., None], radial, smooth[..., None]


class Message(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = layers.Dense(FEATURES, activation="silu", name="inner")
        self.outer = layers.Dense(3 * FEATURES, name="outer")

    def build(self, scalars_shape, *_):
        self.inner.build(scalars_shape)
        self.outer.build(scalars_shape)
        super().build(scalars_shape)

    def call(self, scalars, vectors, filters, direction):
        x = self.outer(self.inner(scalars))[:, None] * filters
        scalar, radial, passed = ops.split(x, 3, axis=-1)
        scalars = scalars + ops.sum(scalar, axis=2)
        change = ops.einsum("bijf,bijd->bidf", radial, direction) + ops.einsum(
            "bijf,bjdf->bidf", passed, vectors
        )
        return scalars, vectors + change


class Update(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.mix = layers.Dense(2 * FEATURES, use_bias=False, name="mix")
        self.inner = layers.Dense(FEATURES, activation="silu", name="inner")
        self.outer = layers.Dense(3 * FEATURES, name="outer")

    def build(self, scalars_shape, *_):
        self.mix.build(scalars_shape)
        self.inner.build((None, None, 2 * FEATURES))
        self.outer.build(scalars_shape)
        super().build(scalars_shape)

    def call(self, scalars, vectors):
        u, v = ops.split(self.mix(vectors), 2, axis=-1)
        norm = ops.sqrt(ops.sum(ops.square(v), axis=2) + 1e-8)
        gates = self.outer(self.inner(ops.concatenate([scalars, norm], axis=-1)))
        alone, scale, cross = ops.split(gates, 3, axis=-1)
        return scalars + alone + cross * ops.sum(u * v, axis=2), vectors + scale[:, :, None] * u


class Dipole(layers.Layer):
    """Gated equivariant readout; the charges of a molecule sum to zero."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.mix = layers.Dense(FEATURES + 1, use_bias=False, name="mix")
        self.inner = layers.Dense(FEATURES, activation="silu", name="inner")
        self.outer = layers.Dense(2, use_bias=False, name="outer")

    def build(self, scalars_shape, *_):
        self.mix.build(scalars_shape)
        self.inner.build((None, None, 2 * FEATURES))
        self.outer.build(scalars_shape)
        super().build(scalars_shape)

    def call(self, scalars, vectors, numbers, positions):
        there = ops.cast(numbers > 0, scalars.dtype)[..., None]
        mixed = self.mix(vectors)
        norm = ops.sqrt(ops.sum(ops.square(mixed[..., :FEATURES]), axis=2) + 1e-8)
        charge, gate = ops.split(
            self.outer(self.inner(ops.concatenate([scalars, norm], axis=-1))), 2, axis=-1
        )
        excess = ops.sum(charge * there, axis=1, keepdims=True) / ops.sum(there, axis=1, keepdims=True)
        atomic = gate * mixed[..., FEATURES]
        return ops.sum(there * (atomic + (charge - excess) * positions), axis=1)


class Energy(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = layers.Dense(FEATURES // 2, activation="silu", name="inner")
        self.outer = layers.Dense(1, use_bias=False, name="outer")

    def build(self, scalars_shape, *_):
        self.inner.build(scalars_shape)
        self.outer.build((None, None, FEATURES // 2))
        super().build(scalars_shape)

    def call(self, scalars, numbers):
        there = ops.cast(numbers > 0, scalars.dtype)[..., None]
        reference = ops.take(ops.convert_to_tensor(REFERENCE, dtype=scalars.dtype), numbers)
        return ops.sum(there * self.outer(self.inner(scalars)), axis=1) + ops.sum(
            reference, axis=1, keepdims=True
        )


def build():
    numbers = keras.Input((ATOMS,), dtype="int32", name="numbers")
    positions = keras.Input((ATOMS, 3), name="positions")
    direction, radial, smooth = Geometry(name="geometry")(numbers, positions)
    filters = layers.Multiply(name="filters")(
        [layers.Dense(LAYERS * 3 * FEATURES, name="filter")(radial), smooth]
    )
    filters = ops.split(filters, LAYERS, axis=-1)
    scalars = layers.Embedding(
        KINDS, FEATURES, keras.initializers.RandomNormal(stddev=1.0), name="embedding"
    )(numbers)
    vectors = ops.zeros_like(ops.repeat(scalars[:, :, None], 3, axis=2))
    for i in range(LAYERS):
        scalars, vectors = Message(name=f"message_{i}")(scalars, vectors, filters[i], direction)
        scalars, vectors = Update(name=f"update_{i}")(scalars, vectors)
    return keras.Model(
        [numbers, positions],
        {
            "dipole": Dipole(name="dipole")(scalars, vectors, numbers, positions),
            "energy": Energy(name="energy")(scalars, numbers),
        },
        name="painn",
    )
