"""DGCNN shape classification of small point clouds."""

import keras
from keras import layers, ops

POINTS, K, CLASSES = 32, 6, 4


def knn(x, k):
    """indices of the k nearest points of every point (the point itself included)"""
    sq = ops.sum(ops.square(x), axis=-1, keepdims=True)
    dist = sq - 2.0 * ops.matmul(x, ops.swapaxes(x, 1, 2)) + ops.swapaxes(sq, 1, 2)
    return ops.top_k(-dist, k)[1]


class EdgeConv(layers.Layer):
    def __init__(self, units, **kw):
        super().__init__(**kw)
        self.mlp = layers.Dense(units, name="mlp")
        self.act = layers.LeakyReLU(negative_slope=0.25)

    def build(self, shape):
        self.mlp.build((None, None, None, 2 * shape[-1]))

    def call(self, x):
        idx = knn(x, K)
        flat = ops.reshape(idx, (-1, POINTS * K, 1))
        nb = ops.take_along_axis(x, ops.broadcast_to(flat, ops.shape(flat)[:2] + (x.shape[-1],)), axis=1)
        nb = ops.reshape(nb, (-1, POINTS, K, x.shape[-1]))
        centre = ops.repeat(x[:, :, None, :], K, axis=2)
        edge = ops.concatenate([centre, nb - centre], axis=-1)
        return ops.max(self.act(self.mlp(edge)), axis=2)

    def compute_output_shape(self, shape):
        return shape[:-1] + (self.mlp.units,)


def build():
    x = keras.Input((POINTS, 3), name="x")
    h1 = EdgeConv(12, name="edge1")(x)
    h2 = EdgeConv(16, name="edge2")(h1)
    h = layers.Concatenate()([h1, h2])
    h = layers.LeakyReLU(negative_slope=0.25)(layers.Dense(24, name="point")(h))
    g = layers.Concatenate()([layers.GlobalMaxPooling1D()(h), layers.GlobalAveragePooling1D()(h)])
    g = layers.LeakyReLU(negative_slope=0.25)(layers.Dense(16, name="fc")(g))
    return keras.Model(x, layers.Dense(CLASSES, name="logits")(g), name="dgcnn")
