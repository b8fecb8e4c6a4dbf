"""Bottle cap inspection: a small CSP backbone with spatial pyramid pooling, five kinds of defects."""

import keras
import numpy as np
from keras import layers, ops

KINDS = 5
CLASS_WEIGHTS = np.array([0.6, 1.3, 1.1, 1.9, 0.8], dtype=np.float32)
SMOOTHING = 0.1


def conv_bn(x, filters, kernel, strides=1, name=None):
    x = layers.Conv2D(filters, kernel, strides=strides, padding="same", use_bias=False, name=f"{name}_conv")(
        x
    )
    x = layers.BatchNormalization(momentum=0.97, epsilon=1e-3, name=f"{name}_bn")(x)
    return layers.Activation("silu", name=f"{name}_act")(x)


def csp_stage(x, filters, depth, shortcut=True, name=None):
    half = filters // 2
    main = conv_bn(x, half, 1, name=f"{name}_main")
    bypass = conv_bn(x, half, 1, name=f"{name}_bypass")
    for i in range(depth):
        y = conv_bn(main, half, 1, name=f"{name}_b{i}_reduce")
        y = conv_bn(y, half, 3, name=f"{name}_b{i}_spatial")
        main = layers.Add()([main, y]) if shortcut else y
    x = layers.Concatenate()([main, bypass])
    return conv_bn(x, filters, 1, name=f"{name}_merge")


def sppf(x, filters, pool=5, name="sppf"):
    x = conv_bn(x, filters // 2, 1, name=f"{name}_reduce")
    p1 = layers.MaxPooling2D(pool, strides=1, padding="same")(x)
    p2 = layers.MaxPooling2D(pool, strides=1, padding="same")(p1)
    p3 = layers.MaxPooling2D(pool, strides=1, padding="same")(p2)
    x = layers.Concatenate()([x, p1, p2, p3])
    return conv_bn(x, filters, 1, name=f"{name}_expand")


def build():
    image = keras.Input((32, 32, 3), name="image")
    x = conv_bn(image / 255.0, 8, 3, strides=2, name="stem")
    x = conv_bn(x, 16, 3, strides=2, name="down2")
    x = csp_stage(x, 16, 1, name="stage2")
    x = conv_bn(x, 32, 3, strides=2, name="down3")
    x = csp_stage(x, 32, 2, name="stage3")
    x = sppf(x, 32)
    x = layers.GlobalAveragePooling2D()(x)
    logits = layers.Dense(KINDS, name="head")(x)
    return keras.Model(image, logits, name="capnet")


def loss(targets, outputs):
    labels = ops.cast(ops.reshape(targets, (-1,)), "int32")
    onehot = ops.one_hot(labels, KINDS, dtype=outputs.dtype)
    soft = onehot * (1.0 - SMOOTHING) + SMOOTHING / KINDS
    ce = -ops.sum(soft * ops.log_softmax(outputs, axis=-1), axis=-1)
    return ce * ops.take(ops.cast(CLASS_WEIGHTS, outputs.dtype), labels)


def optimizer():
    return keras.optimizers.SGD(learning_rate=0.03, momentum=0.9, nesterov=True, global_clipnorm=1.0)
