"""Depth from one picture of a road camera."""

import keras
import tensorflow as tf
from keras import layers, ops


def silog(y_true, y_pred):
    """Scale-invariant error of the logarithm, of each picture."""
    d = tf.math.log(y_pred) - tf.math.log(tf.cast(y_true, y_pred.dtype))
    return tf.reduce_mean(d * d, axis=[1, 2]) - 0.85 * tf.square(tf.reduce_mean(d, axis=[1, 2]))


class BicubicUp(layers.Layer):
    def call(self, t):
        h, w = t.shape[1], t.shape[2]
        return tf.image.resize(t, (2 * h, 2 * w), method="bicubic")

    def compute_output_shape(self, s):
        return (s[0], 2 * s[1], 2 * s[2], s[3])


def build():
    keras.utils.set_random_seed(29)
    x = keras.Input((24, 32, 3), name="x")
    h = layers.Rescaling(1 / 127.5, offset=-1.0, name="scale")(x)
    half = layers.Conv2D(10, 3, strides=2, padding="same", activation="silu", name="enc1")(h)  # 12 x 16
    h = layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2, activation="silu", name="dw")(half)
    h = layers.AveragePooling2D(3, strides=1, padding="same", name="smooth")(h)
    h = layers.Conv2D(20, 3, strides=2, padding="same", activation="silu", name="enc2")(h)  # 6 x 8
    h = layers.Conv2D(20, 3, padding="same", dilation_rate=2, activation="silu", name="mid")(h)
    h = BicubicUp(name="up1")(h)  # 12 x 16
    h = layers.Concatenate(name="skip")([h, half])
    h = layers.Conv2D(12, 3, padding="same", activation="silu", name="dec1")(h)
    h = layers.UpSampling2D(2, interpolation="bilinear", name="up2")(h)  # 24 x 32
    h = layers.Conv2D(1, 3, padding="same", name="head")(h)
    h = layers.Lambda(lambda t: 0.5 + ops.softplus(t[..., 0]), name="metres")(h)
    return keras.Model(x, h)
