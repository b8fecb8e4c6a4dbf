"""One object a picture: its class and its box."""

import keras
from keras import layers


def build():
    image = keras.Input((24, 24, 1), name="image")
    x = image
    for i, filters in enumerate((8, 16, 16), 1):
        x = layers.Conv2D(filters, 3, padding="same", name=f"conv{i}")(x)
        x = layers.GroupNormalization(groups=4, name=f"norm{i}")(x)
        x = layers.LeakyReLU(negative_slope=0.1, name=f"leaky{i}")(x)
        x = layers.AveragePooling2D(2, name=f"pool{i}")(x)
    x = layers.Flatten(name="flatten")(x)
    x = layers.Dense(48, activation="relu", name="trunk")(x)
    label = layers.Dense(3, name="label")(x)
    box = layers.Dense(4, activation="sigmoid", name="box")(x)
    return keras.Model(image, {"label": label, "box": box}, name="detector")
