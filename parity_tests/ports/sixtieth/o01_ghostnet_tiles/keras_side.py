"""GhostNet for surface defects of ceramic tiles (grey pictures, 32 x 32, five classes)."""

import math

import keras
from keras import layers


def bn(x, name):
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-3, name=name)(x)


def ghost(x, filters, name, ratio=3, kernel=1, cheap=3, relu=True):
    primary = math.ceil(filters / ratio)
    a = layers.Conv2D(primary, kernel, padding="same", use_bias=False, name=f"{name}_primary")(x)
    a = bn(a, f"{name}_primary_bn")
    if relu:
        a = layers.ReLU()(a)
    b = layers.DepthwiseConv2D(
        cheap, padding="same", depth_multiplier=ratio - 1, use_bias=False, name=f"{name}_cheap"
    )(a)
    b = bn(b, f"{name}_cheap_bn")
    if relu:
        b = layers.ReLU()(b)
    return layers.Concatenate()([a, b])[..., :filters]


def squeeze_excite(x, name, reduction=4):
    c = x.shape[-1]
    s = layers.GlobalAveragePooling2D(keepdims=True)(x)
    s = layers.Conv2D(max(4, c // reduction), 1, activation="relu", name=f"{name}_reduce")(s)
    s = layers.Conv2D(c, 1, activation="hard_sigmoid", name=f"{name}_expand")(s)
    return layers.Multiply()([x, s])


def bottleneck(x, hidden, out, kernel, stride, se, name):
    skip = x
    y = ghost(x, hidden, f"{name}_ghost1")
    if stride > 1:
        y = layers.DepthwiseConv2D(kernel, strides=stride, padding="same", use_bias=False, name=f"{name}_dw")(
            y
        )
        y = bn(y, f"{name}_dw_bn")
    if se:
        y = squeeze_excite(y, f"{name}_se")
    y = ghost(y, out, f"{name}_ghost2", relu=False)
    if stride > 1 or skip.shape[-1] != out:
        skip = layers.DepthwiseConv2D(
            kernel, strides=stride, padding="same", use_bias=False, name=f"{name}_skip_dw"
        )(skip)
        skip = bn(skip, f"{name}_skip_dw_bn")
        skip = layers.Conv2D(out, 1, use_bias=False, name=f"{name}_skip_pw")(skip)
        skip = bn(skip, f"{name}_skip_pw_bn")
    return layers.Add()([y, skip])


# hidden, out, kernel, stride, squeeze and excite
BLOCKS = [(16, 8, 3, 1, False), (24, 14, 3, 2, False), (28, 14, 3, 1, True), (40, 20, 5, 2, True)]


def build():
    tile = keras.Input((32, 32), name="tile")
    x = layers.Reshape((32, 32, 1))(tile)
    x = (x - 0.54) / 0.21
    x = layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False, name="stem")(x)
    x = bn(x, "stem_bn")
    x = layers.ReLU()(x)
    for i, (hidden, out, kernel, stride, se) in enumerate(BLOCKS):
        x = bottleneck(x, hidden, out, kernel, stride, se, f"b{i}")
    x = layers.Conv2D(48, 1, use_bias=False, name="head_conv")(x)
    x = bn(x, "head_bn")
    x = layers.ReLU()(x)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dense(32, activation="relu", name="head_fc")(x)
    return keras.Model(tile, layers.Dense(5, name="defect")(x))
