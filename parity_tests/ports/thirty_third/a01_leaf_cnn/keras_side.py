"""Leaf disease classifier, small enough for the field tablet."""

import keras
from keras import layers


def build(num_classes=4):
    return keras.Sequential(
        [
            keras.Input((24, 24, 3), name="image"),
            layers.Rescaling(2.0, offset=-1.0),
            layers.Conv2D(12, 3, strides=2, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.SeparableConv2D(24, 3, strides=2, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.LeakyReLU(negative_slope=0.25),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.Dense(num_classes),
        ],
        name="leafnet",
    )
