"""Doubles the side of grey pictures: sub-pixel convolution on top of an enlarged input."""

import keras
import numpy as np
from keras import layers, ops

CHANNELS, FACTOR, EPSILON = 16, 2, 1e-2


def bilinear_matrix(size, factor):
    """(size * factor, size): rows weigh the two nearest pixels; pixel centres are at halves, edges go on."""
    position = np.clip((np.arange(size * factor) + 0.5) / factor - 0.5, 0, size - 1)
    return np.maximum(0.0, 1.0 - np.abs(position[:, None] - np.arange(size)))


def enlarge(x, factor):
    rows, columns = (ops.convert_to_tensor(bilinear_matrix(n, factor), dtype=x.dtype) for n in x.shape[1:3])
    return ops.einsum("ih,jw,bhwc->bijc", rows, columns, x)


def depth_to_space(x, factor):
    height, width, channels = x.shape[1], x.shape[2], x.shape[3] // factor**2
    x = ops.reshape(x, (-1, height, width, factor, factor, channels))
    x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
    return ops.reshape(x, (-1, height * factor, width * factor, channels))


class ResidualBlock(layers.Layer):
    def __init__(self, scale=0.2, **kwargs):
        super().__init__(**kwargs)
        self.scale = scale
        self.conv1 = layers.Conv2D(CHANNELS, 3, padding="same", activation="relu", name="conv1")
        self.conv2 = layers.Conv2D(CHANNELS, 3, padding="same", name="conv2")

    def call(self, x):
        return x + self.scale * self.conv2(self.conv1(x))


class Upsampler(keras.Model):
    def __init__(self):
        super().__init__()
        self.head = layers.Conv2D(CHANNELS, 3, padding="same", name="head")
        self.body = [ResidualBlock(name=f"block{i}") for i in range(3)]
        self.expand = layers.Conv2D(CHANNELS * FACTOR**2, 3, padding="same", name="expand")
        self.tail = layers.Conv2D(1, 3, padding="same", name="tail")

    def call(self, x):
        features = self.head(x)
        y = features
        for block in self.body:
            y = block(y)
        y = ops.relu(depth_to_space(self.expand(y + features), FACTOR))
        return ops.squeeze(enlarge(x, FACTOR) + self.tail(y), axis=-1)


def loss(y_true, y_pred):
    """Charbonnier: an absolute error, rounded off at zero."""
    error = ops.cast(y_true, y_pred.dtype) - y_pred
    return ops.mean(ops.sqrt(ops.square(error) + EPSILON**2), axis=(1, 2))
