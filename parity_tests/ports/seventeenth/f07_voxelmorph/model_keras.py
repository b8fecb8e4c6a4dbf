"""VoxelMorph in two dimensions: one picture is warped onto another by a smooth, invertible field."""

import keras
import tensorflow as tf
from keras import layers


def warp(image, shift):
    """image at (y, x) + shift, bilinear; outside of the picture its border goes on."""
    rows, height, width = tf.shape(image)[0], image.shape[1], image.shape[2]
    channels = image.shape[3]
    y = tf.cast(tf.range(height), shift.dtype)[None, :, None] + shift[..., 0]
    x = tf.cast(tf.range(width), shift.dtype)[None, None, :] + shift[..., 1]
    y, x = tf.clip_by_value(y, 0, height - 1), tf.clip_by_value(x, 0, width - 1)
    y0, x0 = tf.floor(y), tf.floor(x)
    wy, wx = (y - y0)[..., None], (x - x0)[..., None]
    y0, x0 = tf.cast(y0, tf.int32), tf.cast(x0, tf.int32)
    y1, x1 = tf.minimum(y0 + 1, height - 1), tf.minimum(x0 + 1, width - 1)
    flat = tf.reshape(image, (rows, height * width, channels))

    def at(y, x):
        index = tf.reshape(y * width + x, (rows, height * width))
        return tf.reshape(tf.gather(flat, index, batch_dims=1), (rows, height, width, channels))

    top = at(y0, x0) * (1 - wx) + at(y0, x1) * wx
    bottom = at(y1, x0) * (1 - wx) + at(y1, x1) * wx
    return top * (1 - wy) + bottom * wy


class Integrate(layers.Layer):
    """A velocity's flow after unit time, by scaling and squaring."""

    def __init__(self, steps=3, **kwargs):
        super().__init__(**kwargs)
        self.steps = steps

    def call(self, velocity):
        flow = velocity / 2**self.steps
        for _ in range(self.steps):
            flow = flow + warp(flow, flow)
        return flow


class Warp(layers.Layer):
    def call(self, image, flow):
        return warp(image, flow)


def conv(x, filters, name, strides=1):
    return layers.LeakyReLU(0.2)(layers.Conv2D(filters, 3, strides, padding="same", name=name)(x))


def build():
    moving = keras.Input((16, 16, 1), name="moving")
    fixed = keras.Input((16, 16, 1), name="fixed")
    pair = layers.Concatenate()([moving, fixed])
    half = conv(pair, 12, "down1", 2)
    quarter = conv(half, 16, "down2", 2)
    x = conv(quarter, 16, "bottom")
    x = layers.Concatenate()([layers.UpSampling2D()(x), half])
    x = conv(x, 12, "up1")
    x = layers.Concatenate()([layers.UpSampling2D()(x), pair])
    x = conv(x, 8, "up2")
    velocity = layers.Conv2D(
        2, 3, padding="same", kernel_initializer=keras.initializers.RandomNormal(stddev=0.1), name="velocity"
    )(x)
    flow = Integrate(name="integrate")(velocity)
    return keras.Model([moving, fixed], {"warped": Warp(name="warp")(moving, flow), "flow": flow})


def ncc(fixed, warped, window=5):
    """One less the local normalised cross-correlation."""

    def local(x):
        return tf.nn.avg_pool2d(x, window, 1, "VALID")

    a, b = local(fixed), local(warped)
    cross = local(fixed * warped) - a * b
    variances = (local(fixed * fixed) - a * a) * (local(warped * warped) - b * b)
    return 1 - tf.reduce_mean(cross * cross / (variances + 1e-5), axis=(1, 2, 3))


def bending(stiffness, flow):
    """Squared slopes of the flow, where the tissue is stiff more than elsewhere."""
    dy = stiffness[:, 1:] * tf.square(flow[:, 1:] - flow[:, :-1])
    dx = stiffness[:, :, 1:] * tf.square(flow[:, :, 1:] - flow[:, :, :-1])
    return (tf.reduce_mean(dy, axis=(1, 2, 3)) + tf.reduce_mean(dx, axis=(1, 2, 3))) / 2
