"""Parts of a point cloud: PointNet with an input transform."""

import keras
import numpy as np
from keras import layers, ops


class Transform(layers.Layer):
    def __init__(self, **options):
        super().__init__(**options)
        self.each = layers.Dense(16, activation="relu")
        self.matrix = layers.Dense(9)

    def build(self, shape):
        self.each.build(shape)
        self.matrix.build((None, 16))

    def call(self, points):
        pooled = ops.max(self.each(points), axis=1)
        matrix = ops.reshape(self.matrix(pooled), (-1, 3, 3)) + ops.cast(np.eye(3), points.dtype)
        return ops.matmul(points, matrix)


def build():
    points = keras.Input((20, 3), name="points")
    moved = Transform()(points)
    local = layers.Conv1D(16, 1, activation="relu")(moved)
    whole = layers.GlobalMaxPooling1D()(layers.Conv1D(24, 1, activation="relu")(local))
    whole = layers.RepeatVector(20)(whole)
    x = layers.Concatenate()([moved, local, whole])
    x = layers.Conv1D(16, 1, activation="relu")(x)
    return keras.Model(points, layers.Conv1D(4, 1)(x))
