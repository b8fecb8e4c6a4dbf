"""A weather forecast on the globe: rows are latitudes, columns longitudes, which go round."""

import keras
import numpy as np
from keras import layers, ops

LATITUDES = np.linspace(-75, 75, 12)


class GlobePad(layers.Layer):
    """The columns go on at the other side; beyond the poles there is nothing."""

    def call(self, x):
        x = ops.concatenate([x[:, :, -1:], x, x[:, :, :1]], axis=2)
        return ops.pad(x, [[0, 0], [1, 1], [0, 0], [0, 0]])


def conv(x, filters, name):
    return layers.Conv2D(filters, 3, name=name)(GlobePad()(x))


def block(x, name):
    y = layers.GroupNormalization(4, epsilon=1e-5, name=name + "_norm1")(x)
    y = conv(layers.Activation("swish")(y), 16, name + "_conv1")
    y = layers.GroupNormalization(4, epsilon=1e-5, name=name + "_norm2")(y)
    y = layers.SpatialDropout2D(0.1)(layers.Activation("swish")(y))
    return layers.Add()([x, conv(y, 16, name + "_conv2")])


def build():
    inputs = keras.Input((12, 12, 6), name="x")
    x = conv(inputs, 16, "stem")
    for i in range(2):
        x = block(x, f"block{i}")
    change = conv(layers.Activation("swish")(x), 3, "change")
    return keras.Model(inputs, layers.Add()([inputs[..., 3:], change]), name="weather")


def rmse(y_true, y_pred):
    """The root of the squared error, weighted by area, of each variable of a forecast."""
    area = np.cos(np.deg2rad(LATITUDES))
    area = ops.convert_to_tensor((area / area.mean())[:, None, None], dtype=y_pred.dtype)
    return ops.mean(ops.sqrt(ops.mean(area * ops.square(y_pred - y_true), axis=(1, 2))), axis=-1)
