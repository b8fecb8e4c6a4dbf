"""Padded directed graphs (reaction networks): a graph energy and a class of every node."""

import keras
import numpy as np
from keras import layers, ops

N, NODE_F, EDGE_F, KINDS = 10, 5, 3, 4
HEADS, HEAD_DIM = 3, 8
EYE = np.eye(N, dtype="float32")


class GraphAttention(layers.Layer):
    """Row i of the attention is the receiver, column j the sender."""

    def __init__(self, heads, dim, **kwargs):
        super().__init__(**kwargs)
        self.heads, self.dim = heads, dim
        self.w = layers.Dense(heads * dim, use_bias=False, name="w")
        self.edge_score = layers.Dense(heads, use_bias=False, name="edge_score")

    def build(self, x_shape, edges_shape, adj_shape):
        self.w.build(x_shape)
        self.edge_score.build(edges_shape)
        self.a_recv = self.add_weight(
            shape=(self.heads, self.dim), initializer="glorot_uniform", name="a_recv"
        )
        self.a_send = self.add_weight(
            shape=(self.heads, self.dim), initializer="glorot_uniform", name="a_send"
        )
        self.bias = self.add_weight(shape=(self.heads * self.dim,), initializer="zeros", name="bias")

    def call(self, x, edges, adj):
        h = ops.reshape(self.w(x), (-1, N, self.heads, self.dim))
        recv = ops.sum(h * self.a_recv, axis=-1)
        send = ops.sum(h * self.a_send, axis=-1)
        e = ops.expand_dims(recv, 2) + ops.expand_dims(send, 1) + self.edge_score(edges)
        e = ops.leaky_relu(e, negative_slope=0.2)
        linked = ops.expand_dims(ops.maximum(adj, ops.convert_to_tensor(EYE, dtype=adj.dtype)), -1)
        e = ops.where(linked > 0, e, ops.cast(-1e9, e.dtype))
        a = ops.softmax(e, axis=2)
        out = ops.einsum("bijh,bjhd->bihd", a, h)
        return ops.elu(ops.reshape(out, (-1, N, self.heads * self.dim)) + self.bias)

    def compute_output_shape(self, x_shape, edges_shape, adj_shape):
        return (x_shape[0], N, self.heads * self.dim)


def build():
    nodes = keras.Input((N, NODE_F), name="nodes")
    edges = keras.Input((N, N, EDGE_F), name="edges")
    adj = keras.Input((N, N), name="adj")
    mask = keras.Input((N,), name="mask")

    m = layers.Reshape((N, 1))(mask)
    ef = layers.Dense(8, activation="relu", name="edge_mlp")(edges)
    x = layers.Dense(HEADS * HEAD_DIM, activation="tanh", name="node_mlp")(nodes)
    for i in range(2):
        y = GraphAttention(HEADS, HEAD_DIM, name=f"gat{i}")(x, ef, adj)
        x = layers.Add()([x, y])
        x = layers.LayerNormalization(name=f"ln{i}")(x)
        x = layers.Multiply()([x, m])

    count = ops.sum(m, axis=1)
    pooled = layers.Concatenate()([ops.sum(x, axis=1) / count, ops.sum(x, axis=1) * 0.1])
    g = layers.Dense(16, activation="swish", name="graph_mlp")(pooled)
    energy = layers.Dense(1, name="energy")(g)
    kind = layers.Dense(KINDS, name="kind")(x)
    return keras.Model(
        {"nodes": nodes, "edges": edges, "adj": adj, "mask": mask},
        {"energy": energy, "kind": kind},
        name="reaction_gat",
    )


def energy_loss(y, pred):
    return keras.losses.Huber(delta=0.5)(y, pred)


def kind_loss(y, logits):
    y = ops.cast(y, "int32")
    keep = ops.cast(y >= 0, logits.dtype)
    ce = keras.losses.sparse_categorical_crossentropy(ops.maximum(y, 0), logits, from_logits=True)
    return ops.sum(ce * keep) / ops.sum(keep)
