"""Small feature-pyramid segmenter: bilinear upsampling, lateral 1x1 convolutions."""

import keras
from keras import layers


def build(classes=3):
    image = keras.Input((24, 24, 3), name="image")
    c1 = layers.Conv2D(8, 3, padding="same", activation="relu", name="conv1")(image)
    c2 = layers.Conv2D(16, 3, padding="same", activation="relu", name="conv2")(
        layers.AveragePooling2D(2, name="pool1")(c1)
    )
    c3 = layers.Conv2D(24, 3, padding="same", activation="relu", name="conv3")(
        layers.AveragePooling2D(2, name="pool2")(c2)
    )

    up3 = layers.UpSampling2D(2, interpolation="bilinear", name="up3")(
        layers.Conv2D(16, 1, name="lateral3")(c3)
    )
    x = layers.Concatenate(name="merge2")([up3, layers.Conv2D(16, 1, name="lateral2")(c2)])
    x = layers.Conv2D(16, 3, padding="same", activation="relu", name="smooth2")(x)
    up2 = layers.UpSampling2D(2, interpolation="bilinear", name="up2")(x)
    x = layers.Concatenate(name="merge1")([up2, layers.Conv2D(16, 1, name="lateral1")(c1)])
    x = layers.Conv2D(16, 3, padding="same", activation="relu", name="smooth1")(x)
    return keras.Model(image, layers.Conv2D(classes, 1, name="logits")(x), name="segmenter")
