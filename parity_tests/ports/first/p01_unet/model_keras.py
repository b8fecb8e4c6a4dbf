"""U-Net for 32x32 grey pictures, three classes a pixel (functional Keras)."""

import keras
from keras import layers


def double_conv(x, filters, name):
    for i in (1, 2):
        x = layers.Conv2D(
            filters, 3, padding="same", use_bias=False, kernel_initializer="he_normal", name=f"{name}_conv{i}"
        )(x)
        x = layers.BatchNormalization(name=f"{name}_bn{i}")(x)
        x = layers.Activation("relu", name=f"{name}_relu{i}")(x)
    return x


def build_unet(classes=3, width=8):
    image = keras.Input((32, 32, 1), name="image")
    skip1 = double_conv(image, width, "down1")
    skip2 = double_conv(layers.MaxPooling2D(name="pool1")(skip1), width * 2, "down2")
    x = double_conv(layers.MaxPooling2D(name="pool2")(skip2), width * 4, "bottom")

    x = layers.Conv2DTranspose(width * 2, 2, strides=2, name="up2")(x)
    x = layers.Concatenate(name="merge2")([skip2, x])
    x = double_conv(x, width * 2, "dec2")

    x = layers.Conv2DTranspose(width, 3, strides=2, padding="same", name="up1")(x)
    x = layers.Concatenate(name="merge1")([skip1, x])
    x = double_conv(x, width, "dec1")
    logits = layers.Conv2D(classes, 1, name="logits")(x)
    return keras.Model(image, logits, name="unet")
