"""Shapes from point clouds: edge convolutions over the nearest neighbours, found in the coordinates."""

import keras
from keras import layers, ops

POINTS, NEIGHBOURS, SHAPES = 24, 5, 4


class Neighbours(layers.Layer):
    def call(self, points):
        square = ops.sum(ops.square(points), axis=-1)
        distance = (
            square[:, :, None] + square[:, None, :] - 2 * ops.matmul(points, ops.transpose(points, (0, 2, 1)))
        )
        return ops.top_k(-distance, NEIGHBOURS)[1]


class EdgeConv(layers.Layer):
    def __init__(self, width, **kwargs):
        super().__init__(**kwargs)
        self.dense = layers.Dense(width, use_bias=False, name="dense")
        self.norm = layers.BatchNormalization(momentum=0.9, name="norm")

    def build(self, features_shape, index_shape=None):
        self.dense.build((None, POINTS, NEIGHBOURS, 2 * features_shape[-1]))
        self.norm.build((None, POINTS, NEIGHBOURS, self.dense.units))

    def call(self, features, index, training=None):
        width = features.shape[-1]
        flat = ops.reshape(index, (-1, POINTS * NEIGHBOURS, 1))
        near = ops.reshape(ops.take_along_axis(features, flat, axis=1), (-1, POINTS, NEIGHBOURS, width))
        centre = ops.broadcast_to(features[:, :, None], ops.shape(near))
        h = self.norm(self.dense(ops.concatenate([centre, near - centre], axis=-1)), training=training)
        return ops.max(ops.leaky_relu(h, negative_slope=0.25), axis=2)


def build():
    points = keras.Input((POINTS, 3), name="points")
    index = Neighbours(name="neighbours")(points)
    first = EdgeConv(12, name="edge1")(points, index)
    second = EdgeConv(16, name="edge2")(first, index)
    h = layers.Dense(24, activation="mish", name="mix")(layers.concatenate([first, second]))
    pooled = layers.concatenate([layers.GlobalMaxPooling1D()(h), layers.GlobalAveragePooling1D()(h)])
    h = layers.Dense(16, name="hidden")(pooled)
    h = layers.BatchNormalization(momentum=0.9, center=False, name="hidden_norm")(h)
    return keras.Model(points, layers.Dense(SHAPES, name="shapes")(layers.Activation("mish")(h)))
