"""Keyword spotting: log-mel frames -> two conv blocks -> GRU over time."""

import keras
from keras import layers


def conv_block(x, filters, kernel, strides, pool):
    x = layers.Conv2D(filters, kernel, strides=strides, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    x = layers.Activation("relu")(x)
    return layers.MaxPooling2D(pool)(x)


def build():
    logmel = keras.Input((20, 16), name="logmel")
    x = layers.Reshape((20, 16, 1))(logmel)
    x = conv_block(x, 8, (3, 3), (1, 1), (1, 2))  # 20, 8, 8
    x = conv_block(x, 12, (5, 3), (2, 1), (1, 2))  # 10, 4, 12
    x = layers.Reshape((10, 48))(x)
    x = layers.GRU(20)(x)
    return keras.Model(logmel, layers.Dense(6, name="word")(x), name="kws")
