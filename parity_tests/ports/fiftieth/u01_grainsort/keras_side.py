"""Kernels of grain on a conveyor: a small Res2Net with CBAM attention, six grades."""

import keras
from keras import layers, ops


def conv_bn(x, filters, kernel, name, strides=1, activation=True):
    x = layers.Conv2D(
        filters,
        kernel,
        strides=strides,
        padding="same",
        use_bias=False,
        kernel_initializer="he_normal",
        name=f"{name}_conv",
    )(x)
    x = layers.BatchNormalization(name=f"{name}_bn")(x)
    return layers.ReLU(name=f"{name}_relu")(x) if activation else x


class SpatialStats(layers.Layer):
    def call(self, x):
        return ops.concatenate(
            [ops.mean(x, axis=-1, keepdims=True), ops.max(x, axis=-1, keepdims=True)], axis=-1
        )


def cbam(x, ratio, name):
    channels = x.shape[-1]
    squeeze = layers.Dense(channels // ratio, activation="relu", name=f"{name}_squeeze")
    excite = layers.Dense(channels, name=f"{name}_excite")
    avg = excite(squeeze(layers.GlobalAveragePooling2D()(x)))
    mx = excite(squeeze(layers.GlobalMaxPooling2D()(x)))
    gate = layers.Activation("sigmoid")(layers.Add()([avg, mx]))
    x = layers.Multiply()([x, layers.Reshape((1, 1, channels))(gate)])
    where = layers.Conv2D(1, 5, padding="same", activation="sigmoid", name=f"{name}_where")(SpatialStats()(x))
    return layers.Multiply()([x, where])


def res2net_block(x, width, scale, out, name, strides=1):
    shortcut = x
    if strides > 1 or x.shape[-1] != out:
        if strides > 1:
            shortcut = layers.AveragePooling2D(strides, padding="same")(shortcut)
        shortcut = conv_bn(shortcut, out, 1, f"{name}_proj", activation=False)
    y = conv_bn(x, width * scale, 1, f"{name}_in")
    parts = [y[..., i * width : (i + 1) * width] for i in range(scale)]
    done = []
    for i, part in enumerate(parts[:-1]):
        # the first block of a stage does not chain its splits
        if i > 0 and strides == 1:
            part = layers.Add()([part, done[-1]])
        done.append(conv_bn(part, width, 3, f"{name}_split{i}", strides=strides))
    last = parts[-1]
    if strides > 1:
        last = layers.AveragePooling2D(3, strides=strides, padding="same")(last)
    y = layers.Concatenate()(done + [last])
    y = conv_bn(y, out, 1, f"{name}_out", activation=False)
    y = cbam(y, 4, f"{name}_cbam")
    return layers.ReLU(name=f"{name}_end")(layers.Add()([y, shortcut]))


def build():
    images = keras.Input((24, 24, 3), name="image")
    x = layers.Rescaling(1 / 128, offset=-1.0)(images)
    x = conv_bn(x, 12, 3, "stem", strides=2)
    x = res2net_block(x, 5, 4, 16, "a")
    x = res2net_block(x, 6, 4, 24, "b", strides=2)
    x = res2net_block(x, 6, 4, 24, "c")
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(images, layers.Dense(6, name="grade")(x), name="grainsort")
