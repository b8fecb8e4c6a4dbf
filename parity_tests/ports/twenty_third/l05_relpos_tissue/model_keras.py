"""Tissue tile classifier: a small vision transformer with relative position bias."""

import keras
import numpy as np
from keras import layers, ops

TILE, PATCH, DIM, HEADS, N_TYPES = 16, 4, 24, 3, 5
GRID = TILE // PATCH


def relative_index(grid):
    """Number of the bias entry for every pair (query token i, key token j).

    The offset (row_i - row_j, col_i - col_j) is shifted to be non-negative and
    counted row by row in a table of (2 * grid - 1) ** 2 entries.
    """
    coords = np.stack(np.meshgrid(np.arange(grid), np.arange(grid), indexing="ij"))
    coords = coords.reshape(2, -1)
    offset = coords[:, :, None] - coords[:, None, :] + grid - 1
    return (offset[0] * (2 * grid - 1) + offset[1]).astype("int32")


class BiasedAttention(layers.Layer):
    def __init__(self, dim, heads, grid, **kwargs):
        super().__init__(**kwargs)
        self.dim, self.heads, self.grid = dim, heads, grid
        self.index = relative_index(grid)
        self.qkv = layers.Dense(3 * dim, name="qkv")
        self.proj = layers.Dense(dim, name="proj")

    def build(self, input_shape):
        self.qkv.build(input_shape)
        self.bias_table = self.add_weight(
            name="bias_table",
            shape=((2 * self.grid - 1) ** 2, self.heads),
            initializer=keras.initializers.TruncatedNormal(stddev=0.3),
        )
        self.proj.build(input_shape)
        super().build(input_shape)

    def call(self, x):
        tokens, head_dim = self.grid**2, self.dim // self.heads
        qkv = ops.reshape(self.qkv(x), (-1, tokens, 3, self.heads, head_dim))
        q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
        score = ops.einsum("nihd,njhd->nhij", q, k) * head_dim**-0.5
        bias = ops.take(self.bias_table, self.index, axis=0)  # (i, j, heads)
        score = score + ops.transpose(bias, (2, 0, 1))[None]
        mixed = ops.einsum("nhij,njhd->nihd", ops.softmax(score, axis=-1), v)
        return self.proj(ops.reshape(mixed, (-1, tokens, self.dim)))


def block(x, name):
    h = layers.LayerNormalization(epsilon=1e-5, name=name + "_norm1")(x)
    x = x + BiasedAttention(DIM, HEADS, GRID, name=name + "_attn")(h)
    h = layers.LayerNormalization(epsilon=1e-5, name=name + "_norm2")(x)
    h = layers.Dense(2 * DIM, activation="silu", name=name + "_fc1")(h)
    return x + layers.Dense(DIM, name=name + "_fc2")(h)


def build():
    tile = keras.Input((TILE, TILE, 3), name="tile")
    x = layers.Conv2D(DIM, PATCH, strides=PATCH, name="patches")(tile)
    x = layers.Reshape((GRID * GRID, DIM), name="tokens")(x)
    x = block(x, "block1")
    x = block(x, "block2")
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(x)
    x = layers.GlobalAveragePooling1D(name="pool")(x)
    return keras.Model(tile, layers.Dense(N_TYPES, name="head")(x), name="tissue")
