"""Graph attention network on padded dense adjacency matrices (self loops included)."""

import keras
from keras import layers, ops

NODES, FEATS, CLASSES = 12, 7, 3


class GraphAttention(layers.Layer):
    def __init__(self, heads, dim, **kw):
        super().__init__(**kw)
        self.heads, self.dim = heads, dim

    def build(self, input_shape):
        f = input_shape[-1]
        self.kernel = self.add_weight(
            shape=(f, self.heads * self.dim), initializer="glorot_uniform", name="kernel"
        )
        self.a_src = self.add_weight(shape=(self.heads, self.dim), initializer="glorot_uniform", name="a_src")
        self.a_dst = self.add_weight(shape=(self.heads, self.dim), initializer="glorot_uniform", name="a_dst")
        self.bias = self.add_weight(shape=(self.heads * self.dim,), initializer="zeros", name="bias")

    def call(self, x, adj):
        n = ops.shape(x)[1]
        h = ops.reshape(ops.matmul(x, self.kernel), (-1, n, self.heads, self.dim))
        src = ops.einsum("bnhd,hd->bhn", h, self.a_src)
        dst = ops.einsum("bnhd,hd->bhn", h, self.a_dst)
        e = ops.leaky_relu(src[:, :, :, None] + dst[:, :, None, :], negative_slope=0.25)
        e = e + (1.0 - adj[:, None]) * -1e9
        alpha = ops.softmax(e, axis=-1)
        alpha = alpha * adj[:, None]
        out = ops.einsum("bhij,bjhd->bihd", alpha, h)
        return ops.reshape(out, (-1, n, self.heads * self.dim)) + self.bias


def build():
    x = keras.Input((NODES, FEATS), name="x")
    adj = keras.Input((NODES, NODES), name="adj")
    h = layers.ELU()(GraphAttention(3, 8, name="gat1")(x, adj))
    h = layers.ELU()(GraphAttention(3, 8, name="gat2")(h, adj))
    real = ops.expand_dims(ops.diagonal(adj, axis1=1, axis2=2), -1)
    mean = ops.sum(h * real, axis=1) / ops.sum(real, axis=1)
    top = ops.max(h - (1.0 - real) * 1e4, axis=1)
    z = layers.Dense(16, activation="relu", name="fc")(ops.concatenate([mean, top], axis=-1))
    return keras.Model([x, adj], layers.Dense(CLASSES, name="logits")(z))
