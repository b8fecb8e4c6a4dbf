"""Leaf-disease patches -> 4 classes.  A small ConvNeXt-V2 with an anti-aliased downsampling."""

import keras
import numpy as np
from keras import layers, ops


class GRN(layers.Layer):
    """Global response normalisation over the spatial plane."""

    def __init__(self, eps=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.eps = eps

    def build(self, shape):
        self.gamma = self.add_weight(name="gamma", shape=(shape[-1],), initializer="zeros")
        self.beta = self.add_weight(name="beta", shape=(shape[-1],), initializer="zeros")

    def call(self, x):
        energy = ops.sqrt(ops.sum(ops.square(x), axis=(1, 2), keepdims=True))
        ratio = energy / (ops.mean(energy, axis=-1, keepdims=True) + self.eps)
        return self.gamma * (x * ratio) + self.beta + x


class BlurPool(layers.Layer):
    def build(self, shape):
        row = np.array([1.0, 2.0, 1.0])
        k = np.outer(row, row) / 16.0
        self.taps = np.repeat(k[:, :, None, None], shape[-1], axis=2)

    def call(self, x):
        x = ops.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]], mode="reflect")
        taps = ops.convert_to_tensor(self.taps, dtype=x.dtype)
        return ops.depthwise_conv(x, taps, strides=2, padding="valid")


def block(x, width, name):
    skip = x
    x = layers.DepthwiseConv2D(5, padding="same", name=name + "_dw")(x)
    x = layers.LayerNormalization(epsilon=1e-6, name=name + "_ln")(x)
    x = layers.Dense(3 * width, activation="gelu", name=name + "_up")(x)
    x = GRN(name=name + "_grn")(x)
    x = layers.Dense(width, name=name + "_down")(x)
    return layers.Add()([skip, x])


def build():
    img = keras.Input((16, 16, 3), name="x")
    h = layers.Conv2D(10, 2, strides=2, name="stem")(img)
    h = block(h, 10, "b1")
    h = BlurPool(name="blur")(h)
    h = layers.Conv2D(12, 1, use_bias=False, name="widen")(h)
    h = block(h, 12, "b2")
    h = layers.GlobalAveragePooling2D()(h)
    h = layers.LayerNormalization(epsilon=1e-6, name="final_ln")(h)
    return keras.Model(img, layers.Dense(4, name="head")(h))
