"""A model as people write it for float32: a table that NumPy rounds, a variable of that type, and what Keras rounds itself."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

MEAN = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], "float32")
SCALE = tf.Variable(np.float32(0.7), trainable=False)


class Standardized(layers.Layer):
    def call(self, x):
        return (x - tf.constant(MEAN)) / SCALE


def build() -> keras.Model:
    x = keras.Input((6,))
    y = layers.Normalization(mean=[0.3] * 6, variance=[0.2] * 6)(Standardized(name="standardized")(x))
    return keras.Model(x, layers.Dense(3, name="head")(y))
