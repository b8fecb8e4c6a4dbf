"""Which cells of a car park are taken: a frozen backbone, and a new head that upsamples to a map of logits."""

import keras
from keras import layers


def make_backbone():
    return keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            layers.Conv2D(8, 3, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Conv2D(16, 3, strides=2, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
        ],
        name="backbone",
    )


def build():
    backbone = make_backbone()
    backbone.trainable = False
    image = keras.Input((16, 16, 3), name="image")
    x = backbone(image)
    x = layers.Conv2DTranspose(12, 3, strides=2, padding="same", activation="relu", name="up")(x)
    x = layers.SeparableConv2D(8, 3, padding="same", activation="relu", name="refine")(x)
    x = layers.Conv2D(1, 1, name="score")(x)
    return keras.Model(image, layers.Reshape((16, 16))(x), name="parking")
