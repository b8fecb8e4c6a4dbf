"""Graph attention network predicting a solubility-like value of a molecule.

Inputs: atom features (10, 6) and adjacency (10, 10) with self-loops on the real
atoms. Padding atoms have an all-zero row and column.
"""

import keras
from keras import layers, ops

ATOMS, FEATURES = 10, 6
HEADS, UNITS = 3, 8


class GraphAttention(layers.Layer):
    """Multi-head additive attention over the neighbours of every atom."""

    def __init__(self, heads, units, join="concat", **kwargs):
        super().__init__(**kwargs)
        self.heads, self.units, self.join = heads, units, join

    def build(self, nodes_shape, adjacency_shape):
        h, u = self.heads, self.units
        self.kernel = self.add_weight(
            shape=(nodes_shape[-1], h, u), initializer="glorot_uniform", name="kernel"
        )
        init = keras.initializers.RandomNormal(stddev=0.5)
        self.to_self = self.add_weight(shape=(h, u), initializer=init, name="to_self")
        self.to_other = self.add_weight(shape=(h, u), initializer=init, name="to_other")
        width = h * u if self.join == "concat" else u
        self.bias = self.add_weight(shape=(width,), initializer="zeros", name="bias")

    def call(self, nodes, adjacency):
        values = ops.einsum("bnf,fhu->bnhu", nodes, self.kernel)
        own = ops.einsum("bnhu,hu->bnh", values, self.to_self)
        other = ops.einsum("bnhu,hu->bnh", values, self.to_other)
        scores = own[:, :, None, :] + other[:, None, :, :]
        scores = ops.leaky_relu(scores, negative_slope=0.2)
        scores = ops.where(adjacency[..., None] > 0, scores, -1e9)
        weights = ops.softmax(scores, axis=2)
        out = ops.einsum("bijh,bjhu->bihu", weights, values)
        if self.join == "concat":
            out = ops.reshape(out, (-1, ATOMS, self.heads * self.units))
        else:
            out = ops.mean(out, axis=2)
        return out + self.bias


class Readout(layers.Layer):
    """Mean and maximum over the real atoms (those with a self-loop)."""

    def call(self, nodes, adjacency):
        real = ops.diagonal(adjacency, axis1=1, axis2=2)[..., None] > 0
        kept = ops.where(real, nodes, 0.0)
        count = ops.sum(ops.cast(real, nodes.dtype), axis=1)
        mean = ops.sum(kept, axis=1) / count
        top = ops.max(ops.where(real, nodes, -1e9), axis=1)
        return ops.concatenate([mean, top], axis=-1)


def build():
    nodes = keras.Input((ATOMS, FEATURES), name="nodes")
    adjacency = keras.Input((ATOMS, ATOMS), name="adjacency")
    x = GraphAttention(HEADS, UNITS, name="gat0")(nodes, adjacency)
    x = layers.ELU(name="act0")(x)
    skip = layers.Dense(UNITS, use_bias=False, name="skip")(x)
    x = GraphAttention(HEADS, UNITS, join="mean", name="gat1")(x, adjacency)
    x = layers.ELU(name="act1")(layers.Add(name="residual")([x, skip]))
    x = Readout(name="readout")(x, adjacency)
    x = layers.Dense(12, activation="softplus", name="hidden")(x)
    return keras.Model([nodes, adjacency], layers.Dense(1, name="value")(x), name="gat")
