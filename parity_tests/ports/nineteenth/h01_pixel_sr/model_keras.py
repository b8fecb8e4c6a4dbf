"""ESPCN-like upscaler, x2, that learns what bilinear interpolation misses."""

import keras
import tensorflow as tf
from keras import layers

SCALE = 2
EPSILON = 1e-3


def build():
    low = keras.Input((8, 8, 3), name="low")
    x = layers.Conv2D(20, 5, padding="same", activation="tanh", name="features")(low)
    x = layers.Conv2D(16, 3, padding="same", activation="tanh", name="shrink")(x)
    x = layers.Conv2D(3 * SCALE**2, 3, padding="same", name="subpixels")(x)
    x = layers.Lambda(lambda t: tf.nn.depth_to_space(t, SCALE), name="shuffle")(x)
    base = layers.UpSampling2D(SCALE, interpolation="bilinear", name="base")(low)
    return keras.Model(low, layers.Add(name="high")([base, x]))


def charbonnier(y_true, y_pred):
    return tf.reduce_mean(tf.sqrt(tf.square(y_true - y_pred) + EPSILON**2), axis=(1, 2, 3))
