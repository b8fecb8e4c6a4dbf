"""Small U-Net for cell segmentation (16x16 grey crops)."""

import keras
from keras import layers, ops


def conv_block(x, filters, name):
    for i in (1, 2):
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False, name=f"{name}_conv{i}")(x)
        x = layers.BatchNormalization(name=f"{name}_bn{i}")(x)
        x = layers.ReLU(name=f"{name}_relu{i}")(x)
    return x


def build():
    inp = keras.Input((16, 16, 1), name="image")
    d1 = conv_block(inp, 8, "down1")
    d2 = conv_block(layers.MaxPooling2D()(d1), 12, "down2")
    mid = conv_block(layers.MaxPooling2D()(d2), 20, "bottleneck")

    u2 = layers.Conv2DTranspose(12, 3, strides=2, padding="same", name="up2")(mid)
    u2 = conv_block(layers.Concatenate()([u2, d2]), 12, "dec2")
    u1 = layers.Conv2DTranspose(8, 3, strides=2, padding="same", name="up1")(u2)
    u1 = conv_block(layers.Concatenate()([u1, d1]), 8, "dec1")

    out = layers.Conv2D(1, 1, name="logits")(u1)
    out = layers.Reshape((16, 16), name="mask")(out)
    return keras.Model(inp, out, name="cell_unet")


def loss(y_true, y_pred):
    """BCE + soft Dice."""
    y_true = ops.cast(y_true, y_pred.dtype)
    bce = ops.mean(ops.binary_crossentropy(y_true, y_pred, from_logits=True), axis=[1, 2])
    p = ops.sigmoid(y_pred)
    inter = ops.sum(p * y_true, axis=[1, 2])
    total = ops.sum(p, axis=[1, 2]) + ops.sum(y_true, axis=[1, 2])
    dice = (2.0 * inter + 1.0) / (total + 1.0)
    return bce + (1.0 - dice)
