"""PointNet for laser scans of single objects."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

EYE = np.eye(3, dtype=np.float32)


def mlp(h, width, name):
    h = layers.Conv1D(width, 1, name=name)(h)
    h = layers.BatchNormalization(momentum=0.9, name=name + "_bn")(h)
    return layers.Activation("relu", name=name + "_act")(h)


class Orthogonality(layers.Layer):
    """Passes a matrix on, and asks for it to be orthogonal."""

    def __init__(self, weight=0.02, **kw):
        super().__init__(**kw)
        self.weight = weight

    def call(self, matrix):
        gram = tf.linalg.matmul(matrix, matrix, transpose_b=True)
        off = gram - tf.cast(tf.constant(EYE), gram.dtype)
        self.add_loss(self.weight * ops.mean(ops.sum(ops.square(off), axis=(1, 2))))
        return matrix


def build():
    keras.utils.set_random_seed(19)
    x = keras.Input((48, 3), name="x")
    t = mlp(mlp(x, 12, "t1"), 24, "t2")
    t = layers.GlobalMaxPooling1D(name="t_pool")(t)
    t = layers.Dense(16, activation="relu", name="t_hidden")(t)
    t = layers.Dense(
        9,
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.05),
        bias_initializer=lambda shape, dtype=None: tf.cast(
            tf.reshape(tf.constant(EYE), shape), dtype or "float32"
        ),
        name="t_matrix",
    )(t)
    t = Orthogonality(name="ortho")(layers.Reshape((3, 3), name="t_shape")(t))
    h = layers.Dot(axes=(2, 1), name="turned")([x, t])
    h = mlp(mlp(h, 16, "m1"), 32, "m2")
    top = layers.GlobalMaxPooling1D(name="g_max")(h)
    mean = layers.GlobalAveragePooling1D(name="g_mean")(h)
    g = layers.Concatenate(name="g")([top, mean])
    g = layers.Dense(20, activation="relu", name="hidden")(g)
    model = keras.Model(x, layers.Dense(4, name="object")(g))
    model.compile(
        keras.optimizers.Adam(1e-3), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    return model
