"""Leaf disease from small RGB pictures: residual convolutional net, label smoothing."""

import keras
from keras import layers, ops

CLASSES = 4


def conv_bn(x, filters, strides, name):
    x = layers.Conv2D(filters, 3, strides=strides, padding="same", use_bias=False, name=f"{name}_conv")(x)
    return layers.BatchNormalization(momentum=0.9, name=f"{name}_bn")(x)


def block(x, filters, name):
    y = layers.LeakyReLU(0.25, name=f"{name}_act1")(conv_bn(x, filters, 2, f"{name}_a"))
    y = conv_bn(y, filters, 1, f"{name}_b")
    short = layers.AveragePooling2D(3, strides=2, padding="same", name=f"{name}_pool")(x)
    short = layers.Conv2D(filters, 1, name=f"{name}_short")(short)
    return layers.LeakyReLU(0.25, name=f"{name}_act2")(layers.Add(name=f"{name}_add")([y, short]))


def build():
    inp = keras.Input((13, 13, 3), name="picture")
    x = layers.LeakyReLU(0.25, name="stem_act")(conv_bn(inp, 8, 1, "stem"))
    x = block(x, 12, "block1")  # 13 -> 7
    x = block(x, 16, "block2")  # 7 -> 4
    x = layers.Flatten(name="flat")(x)
    x = layers.Dropout(0.25, name="drop")(x)
    out = layers.Dense(CLASSES, name="logits")(x)
    return keras.Model(inp, out, name="leaf")


def loss(y_true, y_pred):
    onehot = ops.one_hot(ops.cast(ops.reshape(y_true, (-1,)), "int32"), CLASSES, dtype=y_pred.dtype)
    soft = onehot * 0.875 + 0.125 / CLASSES
    return ops.mean(ops.categorical_crossentropy(soft, y_pred, from_logits=True))


def optimizer():
    return keras.optimizers.SGD(0.02, momentum=0.875, nesterov=True)
