"""Pre-activation ResNet, padded by layers of its own as in keras.applications."""

import keras
from keras import layers


def conv(x, filters, size, stride, name):
    if size > 1:
        x = layers.ZeroPadding2D(size // 2, name=f"{name}_pad")(x)
    return layers.Conv2D(filters, size, strides=stride, use_bias=False, name=name)(x)


def bn_relu(x, name):
    x = layers.BatchNormalization(epsilon=1e-5, momentum=0.9, name=f"{name}_bn")(x)
    return layers.Activation("relu", name=f"{name}_relu")(x)


def block(x, filters, stride, name):
    pre = bn_relu(x, f"{name}_pre")
    shortcut = conv(pre, filters, 1, stride, f"{name}_shortcut") if stride > 1 else x
    y = bn_relu(conv(pre, filters, 3, stride, f"{name}_conv1"), f"{name}_mid")
    return layers.Add(name=f"{name}_add")([conv(y, filters, 3, 1, f"{name}_conv2"), shortcut])


def build_resnet():
    image = keras.Input((32, 32, 1), name="image")
    x = bn_relu(conv(image, 8, 5, 1, "stem"), "stem")
    x = layers.ZeroPadding2D(1, name="pool_pad")(x)
    x = layers.MaxPooling2D(3, strides=2, name="pool")(x)
    x = block(x, 8, 1, "block1")
    x = block(x, 16, 2, "block2")
    x = block(x, 32, 2, "block3")
    x = bn_relu(x, "final")
    x = layers.GlobalAveragePooling2D(name="average")(x)
    return keras.Model(image, layers.Dense(10, name="logits")(x), name="preact_resnet")
