"""Graph attention over small graphs, one number a graph."""

import keras
from keras import layers, ops


class GraphAttention(layers.Layer):
    def __init__(self, heads, units, concat=True, **kwargs):
        super().__init__(**kwargs)
        self.heads, self.units, self.concat = heads, units, concat

    def build(self, nodes_shape, *_):
        features = nodes_shape[-1]
        self.kernel = self.add_weight(shape=(features, self.heads, self.units), name="kernel")
        self.to = self.add_weight(
            shape=(self.heads, self.units), initializer="glorot_uniform", name="attention_to"
        )
        self.source = self.add_weight(
            shape=(self.heads, self.units), initializer="glorot_uniform", name="attention_from"
        )
        width = self.heads * self.units if self.concat else self.units
        self.bias = self.add_weight(shape=(width,), initializer="zeros", name="bias")

    def call(self, nodes, edges):
        h = ops.einsum("bnf,fhu->bnhu", nodes, self.kernel)
        to = ops.sum(h * self.to, axis=-1)
        source = ops.sum(h * self.source, axis=-1)
        scores = ops.leaky_relu(
            to[:, :, None, :] + source[:, None, :, :], negative_slope=0.2
        )  # b, to, from, heads
        connected = ops.logical_or(edges > 0, ops.eye(edges.shape[1], dtype="bool"))[..., None]
        scores = ops.softmax(ops.where(connected, scores, -1e9), axis=2)
        out = ops.einsum("bijh,bjhu->bihu", scores, h)
        if self.concat:
            out = ops.reshape(out, (-1, nodes.shape[1], self.heads * self.units))
        else:
            out = ops.mean(out, axis=2)
        return out + self.bias


class GatedReadout(layers.Layer):
    """Sum over the nodes that exist, weighted by a softmax of their gates."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.gate = layers.Dense(1)
        self.value = layers.Dense(units, activation="tanh")

    def call(self, nodes, exists):
        gate = ops.where(exists[..., None] > 0, self.gate(nodes), -1e9)
        return ops.sum(ops.softmax(gate, axis=1) * self.value(nodes), axis=1)


def build():
    nodes = keras.Input((10, 6), name="nodes")
    edges = keras.Input((10, 10), name="edges")  # edges[i, j] is 1 where j sends to i
    exists = keras.Input((10,), name="exists")
    x, kept = layers.Dense(12, activation="elu")(nodes), []
    for i in range(3):
        last = i == 2
        y = GraphAttention(3, 4 if not last else 12, concat=not last, name=f"attention{i}")(x, edges)
        y = layers.LayerNormalization(epsilon=1e-5)(y)
        x = layers.Dropout(0.1)(x + layers.ELU()(y))
        kept.append(x)
    x = layers.Concatenate()(kept)
    x = GatedReadout(16, name="readout")(x, exists)
    x = layers.Dense(12, activation="softplus")(x)
    return keras.Model([nodes, edges, exists], layers.Dense(1)(x))
