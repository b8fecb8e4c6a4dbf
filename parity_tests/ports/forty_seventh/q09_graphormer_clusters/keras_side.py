"""Graph transformer for the adsorption energy of small metal clusters.

Attention is biased by the number of hops between two atoms and by their distance in space; a
virtual node, joined to all atoms, is read out.
"""

import math

import keras
from keras import layers, ops

ATOMS = 14
SPECIES = 12  # 0 is padding
HOPS = 8  # the last one: not connected
DIM, HEADS, KERNELS, DEPTH = 48, 6, 16, 3


class GaussianBasis(layers.Layer):
    """Distances in Gaussians of learned centres and widths, scaled and shifted by pair of species."""

    def __init__(self, kernels, **kwargs):
        super().__init__(**kwargs)
        self.kernels = kernels

    def build(self, distances_shape, pairs_shape=None):
        spread = keras.initializers.RandomUniform(0.0, 3.0)
        self.means = self.add_weight(name="means", shape=(self.kernels,), initializer=spread)
        self.stds = self.add_weight(name="stds", shape=(self.kernels,), initializer=spread)
        self.scale = self.add_weight(name="scale", shape=(SPECIES * SPECIES, 1), initializer="ones")
        self.shift = self.add_weight(name="shift", shape=(SPECIES * SPECIES, 1), initializer="zeros")

    def call(self, distances, pairs):
        x = ops.expand_dims(distances, -1)
        x = ops.take(self.scale, pairs, axis=0) * x + ops.take(self.shift, pairs, axis=0)
        std = ops.abs(self.stds) + 0.01
        z = (x - self.means) / std
        return ops.exp(-0.5 * z * z) / (math.sqrt(2 * math.pi) * std)


class PairBias(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.hop_table = layers.Embedding(
            HOPS, HEADS, embeddings_initializer=keras.initializers.RandomNormal(stddev=0.3), name="hop_table"
        )
        self.basis = GaussianBasis(KERNELS, name="basis")
        self.mlp_in = layers.Dense(KERNELS, activation="mish", name="mlp_in")
        self.mlp_out = layers.Dense(HEADS, name="mlp_out")

    def build(self, *shapes):
        self.virtual = self.add_weight(
            name="virtual", shape=(HEADS,), initializer=keras.initializers.RandomNormal(stddev=0.3)
        )
        self.built = True

    def call(self, atoms, hops, positions):
        delta = ops.expand_dims(positions, 2) - ops.expand_dims(positions, 1)
        distances = ops.sqrt(ops.sum(ops.square(delta), -1))
        pairs = SPECIES * ops.expand_dims(atoms, 2) + ops.expand_dims(atoms, 1)
        bias = self.hop_table(hops) + self.mlp_out(self.mlp_in(self.basis(distances, pairs)))
        row = ops.zeros_like(bias[:, :1]) + self.virtual
        bias = ops.concatenate([row, bias], axis=1)
        column = ops.zeros_like(bias[:, :, :1]) + self.virtual
        bias = ops.concatenate([column, bias], axis=2)
        bias = ops.transpose(bias, (0, 3, 1, 2))
        padded = ops.cast(ops.equal(atoms, 0), bias.dtype)
        padded = ops.pad(padded, [[0, 0], [1, 0]])
        return bias - 1e9 * padded[:, None, None, :]


class BiasedAttention(layers.Layer):
    def __init__(self, dim, heads, **kwargs):
        super().__init__(**kwargs)
        self.heads, self.size = heads, dim // heads
        self.q = layers.Dense(dim, name="q")
        self.k = layers.Dense(dim, name="k")
        self.v = layers.Dense(dim, name="v")
        self.o = layers.Dense(dim, name="o")

    def split(self, x):
        return ops.transpose(ops.reshape(x, (-1, ATOMS + 1, self.heads, self.size)), (0, 2, 1, 3))

    def call(self, x, bias):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = ops.matmul(q / math.sqrt(self.size), ops.swapaxes(k, -1, -2)) + bias
        y = ops.matmul(ops.softmax(scores, axis=-1), v)
        return self.o(ops.reshape(ops.transpose(y, (0, 2, 1, 3)), (-1, ATOMS + 1, self.heads * self.size)))


class VirtualNode(layers.Layer):
    def build(self, shape):
        self.token = self.add_weight(
            name="token", shape=(1, 1, shape[-1]), initializer=keras.initializers.RandomNormal(stddev=0.1)
        )

    def call(self, x):
        token = ops.broadcast_to(self.token, (ops.shape(x)[0], 1, x.shape[-1]))
        return ops.concatenate([token, x], axis=1)


def build():
    atoms = keras.Input((ATOMS,), dtype="int32", name="atoms")
    hops = keras.Input((ATOMS, ATOMS), dtype="int32", name="hops")
    positions = keras.Input((ATOMS, 3), name="positions")

    degree = ops.sum(ops.cast(ops.equal(hops, 1), "int32"), axis=-1)
    x = layers.Embedding(SPECIES, DIM, name="species")(atoms)
    x = x + layers.Embedding(ATOMS, DIM, name="degree")(degree)
    x = VirtualNode(name="virtual_node")(x)
    bias = PairBias(name="pair_bias")(atoms, hops, positions)
    for i in range(DEPTH):
        y = layers.LayerNormalization(epsilon=1e-5, name=f"block{i}_norm_attention")(x)
        x = x + BiasedAttention(DIM, HEADS, name=f"block{i}_attention")(y, bias)
        y = layers.LayerNormalization(epsilon=1e-5, name=f"block{i}_norm_mlp")(x)
        y = layers.Dense(2 * DIM, activation="mish", name=f"block{i}_up")(y)
        x = x + layers.Dense(DIM, name=f"block{i}_down")(y)
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(x)
    x = layers.Dense(DIM, activation="tanh", name="pool")(x[:, 0])
    energy = layers.Dense(1, name="energy")(x)
    return keras.Model({"atoms": atoms, "hops": hops, "positions": positions}, energy)
