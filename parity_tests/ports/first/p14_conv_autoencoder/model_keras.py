"""Convolutional autoencoder of 16x16 digits; it is trained to give its input back."""

import keras
from keras import layers


def autoencoder(code=24):
    image = keras.Input((16, 16, 1), name="image")
    x = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu", name="encode1")(image)
    x = layers.Conv2D(16, 3, strides=2, padding="same", activation="relu", name="encode2")(x)
    x = layers.Flatten(name="flatten")(x)
    x = layers.Dense(code, name="code")(x)
    x = layers.Dense(4 * 4 * 16, activation="relu", name="expand")(x)
    x = layers.Reshape((4, 4, 16), name="reshape")(x)
    x = layers.Conv2DTranspose(8, 3, strides=2, padding="same", activation="relu", name="decode1")(x)
    x = layers.Conv2DTranspose(1, 3, strides=2, padding="same", activation="sigmoid", name="decode2")(x)
    return keras.Model(image, x, name="autoencoder")
