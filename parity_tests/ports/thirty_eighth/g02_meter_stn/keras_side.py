"""Reading of an analogue meter: a spatial transformer straightens the dial first."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

SIZE = 24
L2 = 2e-3

_lin = np.linspace(-1.0, 1.0, SIZE).astype("float32")
GRID = np.stack(
    [np.tile(_lin[None, :], (SIZE, 1)), np.tile(_lin[:, None], (1, SIZE)), np.ones((SIZE, SIZE), "float32")],
    -1,
)


@tf.function
def bilinear_sample(image, xs, ys):
    """xs, ys from -1 (centre of the first pixel) to 1 (centre of the last)."""
    size = SIZE - 1.0
    px = tf.clip_by_value((xs + 1.0) * 0.5 * size, 0.0, size)
    py = tf.clip_by_value((ys + 1.0) * 0.5 * size, 0.0, size)
    x0, y0 = tf.floor(px), tf.floor(py)
    fx, fy = (px - x0)[..., None], (py - y0)[..., None]
    ix0, iy0 = tf.cast(x0, tf.int32), tf.cast(y0, tf.int32)
    ix1, iy1 = tf.minimum(ix0 + 1, SIZE - 1), tf.minimum(iy0 + 1, SIZE - 1)

    def at(iy, ix):
        return tf.gather_nd(image, tf.stack([iy, ix], -1), batch_dims=1)

    top = at(iy0, ix0) * (1.0 - fx) + at(iy0, ix1) * fx
    low = at(iy1, ix0) * (1.0 - fx) + at(iy1, ix1) * fx
    return top * (1.0 - fy) + low * fy


class SpatialTransformer(layers.Layer):
    def call(self, inputs):
        image, theta = inputs
        theta = tf.reshape(theta, (-1, 2, 3))
        where = tf.einsum("bij,hwj->bhwi", theta, tf.cast(tf.constant(GRID), theta.dtype))
        return bilinear_sample(image, where[..., 0], where[..., 1])

    def compute_output_shape(self, shapes):
        return shapes[0]


def identity_bias(shape, dtype=None):
    return tf.constant([0.95, 0.05, 0.03, -0.05, 0.95, -0.02], dtype=dtype)


def build():
    keras.utils.set_random_seed(5)
    reg = keras.regularizers.L2(L2)
    x = keras.Input((SIZE, SIZE, 1), name="x")
    h = layers.Conv2D(6, 5, strides=2, activation="relu", name="loc1")(x)  # 10
    h = layers.Conv2D(8, 3, strides=2, activation="relu", name="loc2")(h)  # 4
    h = layers.GlobalMaxPooling2D(name="loc_pool")(h)
    h = layers.Dense(12, activation="tanh", name="loc_hidden")(h)
    theta = layers.Dense(
        6,
        kernel_initializer=keras.initializers.RandomNormal(0.0, 0.03),
        bias_initializer=identity_bias,
        name="theta",
    )(h)
    h = SpatialTransformer(name="stn")([x, theta])
    h = layers.Conv2D(8, 3, activation="relu", kernel_regularizer=reg, name="conv1")(h)
    h = layers.MaxPooling2D(2, name="pool1")(h)
    h = layers.Conv2D(12, 3, activation="relu", kernel_regularizer=reg, name="conv2")(h)
    h = layers.GlobalAveragePooling2D(name="gap")(h)
    h = layers.Dense(24, activation="relu", kernel_regularizer=reg, name="hidden")(h)
    model = keras.Model(x, layers.Dense(6, name="reading")(h))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
