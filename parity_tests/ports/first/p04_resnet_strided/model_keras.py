"""ResNet for 16x16 colour pictures with values 0 to 255."""

import keras
from keras import layers


def conv_bn(x, filters, size, stride, name):
    x = layers.Conv2D(filters, size, strides=stride, padding="same", use_bias=False, name=f"{name}_conv")(x)
    return layers.BatchNormalization(name=f"{name}_bn")(x)


def block(x, filters, stride, name):
    shortcut = x
    if stride != 1 or x.shape[-1] != filters:
        shortcut = conv_bn(x, filters, 1, stride, f"{name}_shortcut")
    y = layers.ReLU(name=f"{name}_relu1")(conv_bn(x, filters, 3, stride, f"{name}_1"))
    y = conv_bn(y, filters, 3, 1, f"{name}_2")
    return layers.ReLU(name=f"{name}_out")(layers.Add(name=f"{name}_add")([shortcut, y]))


def build():
    image = keras.Input((16, 16, 3), name="image")
    x = layers.Rescaling(1 / 127.5, offset=-1.0, name="rescale")(image)
    x = layers.ReLU(name="stem_relu")(conv_bn(x, 8, 3, 1, "stem"))
    for i, (filters, stride) in enumerate([(8, 1), (16, 2), (32, 2)], 1):
        x = block(x, filters, stride, f"block{i}")
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return keras.Model(image, layers.Dense(10, name="logits")(x), name="resnet")
