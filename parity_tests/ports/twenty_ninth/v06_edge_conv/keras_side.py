"""Dynamic-graph style point cloud net (EdgeConv on a fixed k-NN graph in xyz)."""

import keras
import tensorflow as tf
from keras import layers, ops

K = 5


class KNN(layers.Layer):
    """Indices of the K nearest other points."""

    def call(self, p):
        sq = ops.sum(p * p, axis=-1, keepdims=True)
        dist = sq - 2 * ops.matmul(p, ops.swapaxes(p, 1, 2)) + ops.swapaxes(sq, 1, 2)
        _, idx = ops.top_k(-dist, K + 1)
        return idx[:, :, 1:]


class EdgeFeatures(layers.Layer):
    def call(self, h, idx):
        nb = tf.gather(h, idx, batch_dims=1)
        centre = ops.broadcast_to(h[:, :, None, :], ops.shape(nb))
        return ops.concatenate([centre, nb - centre], axis=-1)


def edge_conv(h, idx, width, tag):
    e = EdgeFeatures(name=f"{tag}_edges")(h, idx)
    e = layers.Dense(width, use_bias=False, name=f"{tag}_mlp")(e)
    e = layers.BatchNormalization(name=f"{tag}_bn")(e)
    e = layers.LeakyReLU(negative_slope=0.2, name=f"{tag}_act")(e)
    return layers.Lambda(lambda t: ops.max(t, axis=2), name=f"{tag}_max")(e)


def build():
    pts = keras.Input((18, 3), name="x")
    idx = KNN(name="knn")(pts)
    a = edge_conv(pts, idx, 8, "ec1")
    b = edge_conv(a, idx, 12, "ec2")
    h = layers.Concatenate()([a, b])
    h = layers.Dense(16, name="fuse")(h)
    h = layers.LeakyReLU(negative_slope=0.2)(h)
    h = layers.Concatenate()([layers.GlobalMaxPooling1D()(h), layers.GlobalAveragePooling1D()(h)])
    return keras.Model(pts, layers.Dense(3, name="cls")(h))
