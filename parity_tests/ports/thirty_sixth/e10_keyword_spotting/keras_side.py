"""Spoken commands from a log-mel picture: a small residual network."""

import keras
from keras import layers

FRAMES, MELS, WORDS = 17, 9, 8


def res_block(x, width, name):
    """Pools in the shortcut, strides in the branch."""
    y = layers.GroupNormalization(4, name=name + "_norm1")(x)
    y = layers.LeakyReLU(negative_slope=0.1)(y)
    y = layers.Conv2D(width, 3, strides=2, padding="same", name=name + "_conv1")(y)
    y = layers.GroupNormalization(4, name=name + "_norm2")(y)
    y = layers.LeakyReLU(negative_slope=0.1)(y)
    y = layers.Conv2D(width, 3, padding="same", name=name + "_conv2")(y)
    s = layers.AveragePooling2D(3, strides=2, padding="same", name=name + "_pool")(x)
    s = layers.Conv2D(width, 1, use_bias=False, name=name + "_short")(s)
    return layers.Add(name=name)([y, s])


def build():
    mel = keras.Input((FRAMES, MELS), name="mel")
    x = layers.Reshape((FRAMES, MELS, 1), name="channel")(mel)
    x = layers.Conv2D(8, (5, 3), padding="same", name="stem")(x)
    x = res_block(x, 12, "block1")  # 9 x 5
    x = res_block(x, 16, "block2")  # 5 x 3
    x = layers.Activation("relu")(x)
    x = layers.SpatialDropout2D(0.2, name="drop")(x)
    most = layers.GlobalMaxPooling2D(name="max")(x)
    mean = layers.GlobalAveragePooling2D(name="mean")(x)
    x = layers.Concatenate(name="pooled")([most, mean])
    return keras.Model(mel, layers.Dense(WORDS, name="words")(x), name="spotter")
