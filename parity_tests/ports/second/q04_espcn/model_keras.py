"""Luminance super-resolution by sub-pixel convolution, learned as a correction of bilinear interpolation."""

import keras
from keras import layers, ops


class DepthToSpace(layers.Layer):
    def __init__(self, r, **kwargs):
        super().__init__(**kwargs)
        self.r = r

    def call(self, x):
        r = self.r
        _, h, w, c = x.shape
        x = ops.reshape(x, (-1, h, w, r, r, c // r**2))
        return ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, h * r, w * r, c // r**2))


def build(size=12, r=2):
    low = keras.Input((size, size, 1), name="x")
    x = layers.Conv2D(32, 5, padding="same", activation="tanh", name="conv1")(low)
    x = layers.Conv2D(16, 3, padding="same", activation="tanh", name="conv2")(x)
    x = layers.Conv2D(r * r, 3, padding="same", name="conv3")(x)
    x = DepthToSpace(r, name="shuffle")(x)
    up = layers.UpSampling2D(r, interpolation="bilinear", name="bilinear")(low)
    return keras.Model(low, layers.Add(name="restored")([x, up]), name="espcn")
