"""Fine-tuning: the backbone is frozen, neck and heads are trained."""

import keras
from keras import layers, ops


def make_backbone():
    image = keras.Input((16, 16, 3))
    x = image
    for i, filters in enumerate((8, 12)):
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False, name=f"conv{i}")(x)
        x = layers.BatchNormalization(name=f"bn{i}")(x)
        x = layers.ReLU(6.0, name=f"relu{i}")(x)
        x = layers.AveragePooling2D(2, name=f"pool{i}")(x)
    return keras.Model(image, x, name="backbone")


@keras.saving.register_keras_serializable("shelf")
class StopGradient(layers.Layer):
    def call(self, x):
        return ops.stop_gradient(x)


def build():
    backbone = make_backbone()
    backbone.trainable = False

    photo = keras.Input((16, 16, 3), name="photo")
    x = backbone(photo)
    x = layers.Conv2D(12, 3, activation="relu", name="neck")(x)
    x = layers.Flatten(name="flat")(x)
    shared = layers.Dense(20, activation="relu", name="shared")(x)

    kind = layers.Dense(3, name="kind")(shared)
    box = layers.Dense(4, activation="sigmoid", name="box")(shared)
    # quality of the picture: reads the features, must not shape them
    q = layers.Dense(8, activation="relu", name="quality")(StopGradient(name="stop")(shared))
    sharp = layers.Dense(1, name="sharp")(q)
    return keras.Model(photo, {"kind": kind, "box": box, "sharp": sharp}, name="shelf")
