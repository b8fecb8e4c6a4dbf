"""Lesion segmentation, one-level U-Net with instance normalisation. BCE + soft dice."""

import keras
from keras import layers, ops


def conv(x, filters, strides=1, groups=1):
    x = layers.Conv2D(filters, 3, strides=strides, padding="same", groups=groups)(x)
    x = layers.GroupNormalization(groups=-1)(x)
    return layers.Activation("silu")(x)


def build():
    scan = keras.Input((16, 16, 2), name="scan")
    fine = conv(scan, 8)
    x = conv(fine, 16, strides=2)
    x = conv(x, 16, groups=4)
    x = layers.Conv2DTranspose(8, 3, strides=2, padding="same")(x)
    x = layers.Concatenate()([fine, x])
    x = conv(x, 8)
    x = layers.Conv2D(1, 1)(x)
    return keras.Model(scan, layers.Reshape((16, 16))(x))


def bce_dice(y_true, y_pred):
    axes = (1, 2)
    bce = ops.mean(ops.softplus(y_pred) - y_true * y_pred, axis=axes)
    p = ops.sigmoid(y_pred)
    overlap = ops.sum(p * y_true, axis=axes)
    dice = (2.0 * overlap + 1.0) / (ops.sum(p, axis=axes) + ops.sum(y_true, axis=axes) + 1.0)
    return bce + 1.0 - dice
