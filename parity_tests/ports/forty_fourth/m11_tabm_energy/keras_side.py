"""TabM: an ensemble in one network, predicting quantiles of the heating demand of a house."""

import keras
import numpy as np
from keras import layers, ops

MEMBERS = 8
EMBEDDING = 6
CARDINALITIES = (5, 4, 7)  # energy carrier, kind of house, region
QUANTILES = np.array([0.1, 0.5, 0.9], "float32")

# bin edges of the numeric features: quantiles of the national register
EDGES = np.array(
    [
        [42, 71, 93, 115, 148, 190, 260],  # floor area, m2
        [1905, 1938, 1959, 1974, 1986, 1999, 2016],  # year built
        [0.14, 0.22, 0.35, 0.58, 0.93, 1.3, 1.9],  # U value of the walls
        [0.08, 0.12, 0.16, 0.2, 0.25, 0.31, 0.42],  # glazed share
        [1, 1.6, 2, 2.5, 3.1, 4, 6],  # occupants
        [3, 35, 90, 180, 320, 510, 900],  # altitude, m
        [1900, 2300, 2600, 2850, 3100, 3400, 4100],  # heating degree days
        [0.4, 0.8, 1.3, 2.1, 3.4, 5.2, 9.0],  # air leakage, 1/h at 50 Pa
    ],
    "float32",
)
LOWER, WIDTH = EDGES[:, :-1], np.diff(EDGES, axis=1)
BINS = WIDTH.shape[1]
# the outer bins go on linearly beyond the edges
FLOOR = np.array([-np.inf] + [0.0] * (BINS - 1), "float32")
CEILING = np.array([1.0] * (BINS - 1) + [np.inf], "float32")


class PiecewiseLinearEmbedding(layers.Layer):
    def __init__(self, width, **kwargs):
        super().__init__(**kwargs)
        self.width = width

    def build(self, shape):
        n = shape[-1]
        self.kernel = self.add_weight(
            shape=(n, BINS, self.width), initializer="glorot_uniform", name="kernel"
        )
        self.bias = self.add_weight(shape=(n, self.width), initializer="zeros", name="bias")
        self.missing = self.add_weight(
            shape=(n, self.width), initializer=keras.initializers.RandomNormal(stddev=0.1), name="missing"
        )

    def call(self, x):
        absent = ops.isnan(x)[..., None]
        x = ops.nan_to_num(x)[..., None]
        dtype = x.dtype
        share = (x - ops.cast(LOWER, dtype)) / ops.cast(WIDTH, dtype)
        share = ops.minimum(ops.maximum(share, ops.cast(FLOOR, dtype)), ops.cast(CEILING, dtype))
        embedded = ops.relu(ops.einsum("bfk,fkd->bfd", share, self.kernel) + self.bias)
        return ops.where(absent, self.missing, embedded)


class BatchEnsembleDense(layers.Layer):
    """One kernel for all members, and for each member scales of inputs and outputs and a bias."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, shape):
        members, width = shape[1:]
        around_one = keras.initializers.RandomNormal(mean=1.0, stddev=0.3)
        self.kernel = self.add_weight(shape=(width, self.units), initializer="he_normal", name="kernel")
        self.scale_in = self.add_weight(shape=(members, width), initializer=around_one, name="scale_in")
        self.scale_out = self.add_weight(
            shape=(members, self.units), initializer=around_one, name="scale_out"
        )
        self.bias = self.add_weight(shape=(members, self.units), initializer="zeros", name="bias")

    def call(self, x):
        return ops.matmul(x * self.scale_in, self.kernel) * self.scale_out + self.bias


class MemberHeads(layers.Layer):
    """Low, middle and high quantile of each member, in this order by construction."""

    def build(self, shape):
        members, width = shape[1:]
        self.kernel = self.add_weight(shape=(members, width, 3), initializer="glorot_uniform", name="kernel")
        self.bias = self.add_weight(shape=(members, 3), initializer="zeros", name="bias")

    def call(self, x):
        raw = ops.einsum("bkd,kdo->bko", x, self.kernel) + self.bias
        middle, below, above = ops.split(raw, 3, axis=-1)
        return ops.concatenate([middle - ops.softplus(below), middle, middle + ops.softplus(above)], axis=-1)


def build():
    numeric = keras.Input((len(EDGES),), name="numeric")
    categories = keras.Input((len(CARDINALITIES),), dtype="int32", name="categories")
    parts = [layers.Flatten()(PiecewiseLinearEmbedding(EMBEDDING, name="numeric_embedding")(numeric))]
    for i, size in enumerate(CARDINALITIES):
        parts.append(layers.Embedding(size, 4, name=f"category_{i}")(categories[:, i]))
    x = layers.Concatenate()(parts)
    x = ops.repeat(ops.expand_dims(x, 1), MEMBERS, axis=1)
    for i in range(2):
        x = layers.ReLU()(BatchEnsembleDense(40, name=f"ensemble_{i}")(x))
    return keras.Model([numeric, categories], MemberHeads(name="quantiles")(x))


def pinball(demand, quantiles):
    demand = ops.reshape(ops.cast(demand, quantiles.dtype), (-1, 1, 1))
    tau = ops.cast(QUANTILES, quantiles.dtype)
    error = demand - quantiles
    return ops.mean(ops.maximum(tau * error, (tau - 1.0) * error))
