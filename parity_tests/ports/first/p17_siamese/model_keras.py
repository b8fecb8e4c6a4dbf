"""Are the two digits the same? Siamese net with |a - b|."""

import keras
from keras import layers, ops


def encoder():
    return keras.Sequential(
        [
            keras.Input((16, 16, 1)),
            layers.Conv2D(8, 3, activation="relu", name="conv1"),
            layers.MaxPooling2D(name="pool1"),
            layers.Conv2D(16, 3, activation="relu", name="conv2"),
            layers.GlobalAveragePooling2D(name="gap"),
        ],
        name="encoder",
    )


def build():
    left, right = keras.Input((16, 16, 1), name="left"), keras.Input((16, 16, 1), name="right")
    encode = encoder()
    project = layers.Dense(24, activation="tanh", name="project")
    a, b = project(encode(left)), project(encode(right))
    distance = ops.absolute(layers.Subtract(name="subtract")([a, b]))
    x = layers.Dense(16, activation="relu", name="compare")(distance)
    return keras.Model([left, right], layers.Dense(2, name="same")(x), name="siamese")
