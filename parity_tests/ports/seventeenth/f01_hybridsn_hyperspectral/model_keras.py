"""HybridSN: crop types from patches of a hyperspectral image, 3D convolutions first, then 2D."""

import keras
from keras import layers


def build():
    inputs = keras.Input((9, 9, 16, 1), name="x")
    x = layers.Conv3D(6, (3, 3, 5), activation="relu", name="spectral_1")(inputs)
    x = layers.Conv3D(8, (3, 3, 3), activation="relu", name="spectral_2")(x)
    x = layers.Reshape((5, 5, 10 * 8))(x)
    x = layers.Conv2D(24, 3, activation="relu", name="spatial")(x)
    x = layers.Flatten()(x)
    x = layers.Dense(48, activation="relu", name="hidden")(x)
    x = layers.Dropout(0.3)(x)
    x = layers.Dense(32, activation="relu", name="hidden_2")(x)
    x = layers.Dropout(0.3)(x)
    return keras.Model(inputs, layers.Dense(5, name="classes")(x), name="hybridsn")
