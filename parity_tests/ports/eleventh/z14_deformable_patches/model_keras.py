"""Small pictures through a modulated deformable convolution: samples between pixels, zeros outside."""

import keras
import numpy as np
from keras import layers, ops


class DeformableConv(layers.Layer):
    def __init__(self, filters, **kwargs):
        super().__init__(**kwargs)
        small = keras.initializers.RandomNormal(stddev=0.05)
        bias = keras.initializers.Constant(0.3)
        self.offset = layers.Conv2D(
            18, 3, padding="same", kernel_initializer=small, bias_initializer=bias, name="offset"
        )
        self.modulation = layers.Conv2D(9, 3, padding="same", activation="sigmoid", name="modulation")
        self.mix = layers.Dense(filters, name="mix")

    def build(self, shape):
        self.offset.build(shape)
        self.modulation.build(shape)
        self.mix.build((*shape[:-1], 9 * shape[-1]))

    def call(self, x):
        _, height, width, channels = x.shape
        flat = ops.reshape(x, (-1, height * width, channels))
        offset = ops.reshape(self.offset(x), (-1, height, width, 9, 2))
        down, right = (ops.convert_to_tensor(tap, dtype=x.dtype) for tap in np.divmod(np.arange(9), 3))
        row = offset[..., 0] + ops.arange(height, dtype=x.dtype)[:, None, None] + down - 1
        column = offset[..., 1] + ops.arange(width, dtype=x.dtype)[:, None] + right - 1
        top, left = ops.floor(row), ops.floor(column)

        def corner(y, x):
            inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
            index = ops.clip(y, 0, height - 1) * width + ops.clip(x, 0, width - 1)
            index = ops.reshape(ops.cast(index, "int32"), (-1, height * width * 9, 1))
            values = ops.take_along_axis(flat, ops.repeat(index, channels, axis=2), axis=1)
            share = (1 - ops.abs(row - y)) * (1 - ops.abs(column - x)) * ops.cast(inside, row.dtype)
            return ops.reshape(values, (-1, height, width, 9, channels)) * share[..., None]

        sampled = (
            corner(top, left) + corner(top, left + 1) + corner(top + 1, left) + corner(top + 1, left + 1)
        )
        sampled = sampled * self.modulation(x)[..., None]
        return self.mix(ops.reshape(sampled, (-1, height, width, 9 * channels)))


def build():
    picture = keras.Input((10, 10, 2), name="picture")
    x = layers.Conv2D(8, 3, padding="same", activation="relu", name="stem")(picture)
    x = layers.Activation("relu")(DeformableConv(14, name="deform")(x))
    x = layers.AveragePooling2D(2)(x)
    x = layers.Conv2D(16, 3, activation="relu", name="top")(x)
    x = layers.Flatten()(x)
    return keras.Model(picture, layers.Dense(5, name="classes")(x))
