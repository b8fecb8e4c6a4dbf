"""Knot types in birch veneer sheets, a small RepVGG in its training form."""

import keras
import numpy as np
from keras import layers, ops

CLASSES = 5  # sound, dead, pin, bark pocket, split
CLASS_WEIGHTS = np.array([0.5, 1.1, 0.8, 1.9, 1.4], dtype=np.float32)


def conv_bn(x, filters, kernel, strides, groups, name):
    x = layers.Conv2D(
        filters, kernel, strides=strides, padding="same", groups=groups, use_bias=False, name=name + "_conv"
    )(x)
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=name + "_bn")(x)


def squeeze_excite(x, name, ratio=4):
    filters = x.shape[-1]
    s = layers.GlobalAveragePooling2D(keepdims=True, name=name + "_pool")(x)
    s = layers.Conv2D(filters // ratio, 1, activation="relu", name=name + "_down")(s)
    s = layers.Conv2D(filters, 1, activation="sigmoid", name=name + "_up")(s)
    return layers.Multiply(name=name + "_scale")([x, s])


def repvgg_block(x, filters, strides=1, groups=1, se=False, name=None):
    branches = [
        conv_bn(x, filters, 3, strides, groups, name + "_dense"),
        conv_bn(x, filters, 1, strides, groups, name + "_point"),
    ]
    if strides == 1 and x.shape[-1] == filters:
        branches.append(layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=name + "_id_bn")(x))
    y = layers.Add(name=name + "_sum")(branches)
    if se:
        y = squeeze_excite(y, name + "_se")
    return layers.ReLU(name=name + "_relu")(y)


def build():
    image = keras.Input((18, 18, 3), name="image")
    x = layers.Rescaling(1 / 127.5, offset=-1.0)(image)
    x = repvgg_block(x, 8, strides=2, name="stem")
    x = repvgg_block(x, 16, strides=2, name="s1_b0")
    x = repvgg_block(x, 16, groups=2, se=True, name="s1_b1")
    x = repvgg_block(x, 24, strides=2, name="s2_b0")
    x = repvgg_block(x, 24, groups=2, se=True, name="s2_b1")
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    logits = layers.Dense(CLASSES, name="logits")(x)
    return keras.Model(image, logits, name="repvgg_veneer")


def loss(targets, outputs):
    """Weighted Poly-1 cross-entropy, epsilon = 1."""
    onehot = ops.one_hot(ops.cast(targets, "int32"), CLASSES, dtype=outputs.dtype)
    ce = -ops.sum(onehot * ops.log_softmax(outputs, axis=-1), axis=-1)
    pt = ops.sum(onehot * ops.softmax(outputs, axis=-1), axis=-1)
    weights = ops.sum(onehot * CLASS_WEIGHTS, axis=-1)
    return weights * (ce + (1.0 - pt))
