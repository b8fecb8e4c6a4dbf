"""MobileNetV3-like: inverted residuals with depthwise convolutions and squeeze-and-excite."""

import keras
from keras import layers


def bn(x, name):
    return layers.BatchNormalization(momentum=0.95, name=f"{name}_bn")(x)


def squeeze_excite(x, reduced, name):
    s = layers.GlobalAveragePooling2D(name=f"{name}_squeeze")(x)
    s = layers.Dense(reduced, activation="relu", name=f"{name}_reduce")(s)
    s = layers.Dense(x.shape[-1], activation="hard_sigmoid", name=f"{name}_expand")(s)
    s = layers.Reshape((1, 1, x.shape[-1]), name=f"{name}_reshape")(s)
    return layers.Multiply(name=f"{name}_excite")([x, s])


def inverted_residual(x, expand, filters, stride, name):
    y = layers.Conv2D(expand, 1, use_bias=False, name=f"{name}_expand")(x)
    y = layers.Activation("silu", name=f"{name}_act1")(bn(y, f"{name}_expand"))
    y = layers.DepthwiseConv2D(3, strides=stride, padding="same", use_bias=False, name=f"{name}_depthwise")(y)
    y = layers.Activation("silu", name=f"{name}_act2")(bn(y, f"{name}_depthwise"))
    y = squeeze_excite(y, expand // 4, f"{name}_se")
    y = bn(layers.Conv2D(filters, 1, use_bias=False, name=f"{name}_project")(y), f"{name}_project")
    if stride == 1 and x.shape[-1] == filters:
        y = layers.Add(name=f"{name}_add")([x, y])
    return y


def build():
    image = keras.Input((32, 32, 3), name="image")
    x = layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False, name="stem")(image)
    x = layers.ReLU(max_value=6.0, name="stem_relu6")(bn(x, "stem"))
    x = inverted_residual(x, 16, 8, 1, "ir1")
    x = inverted_residual(x, 24, 16, 2, "ir2")
    x = inverted_residual(x, 48, 16, 1, "ir3")
    x = inverted_residual(x, 48, 24, 2, "ir4")
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return keras.Model(image, layers.Dense(10, name="logits")(x), name="mobilenet_se")
