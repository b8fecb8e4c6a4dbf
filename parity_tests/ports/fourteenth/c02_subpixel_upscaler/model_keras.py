"""Doubles the resolution of small grey pictures with sub-pixel convolution."""

import keras
from keras import layers, ops


class SubPixel(layers.Layer):
    """(h, w, c * r * r) to (h * r, w * r, c); a channel's r * r sub-pixels lie side by side."""

    def __init__(self, factor=2, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor

    def call(self, x):
        r = self.factor
        _, h, w, c = x.shape
        x = ops.reshape(x, (-1, h, w, c // r**2, r, r))
        x = ops.transpose(x, (0, 1, 4, 2, 5, 3))
        return ops.reshape(x, (-1, h * r, w * r, c // r**2))

    def compute_output_shape(self, shape):
        r = self.factor
        return (shape[0], shape[1] * r, shape[2] * r, shape[3] // r**2)


def residual(x, filters, name):
    y = layers.Conv2D(filters, 3, padding="same", name=f"{name}_a")(x)
    y = layers.PReLU(shared_axes=[1, 2], name=f"{name}_act")(y)
    y = layers.Conv2D(filters, 3, padding="same", name=f"{name}_b")(y)
    return x + 0.2 * y


def build():
    picture = keras.Input((8, 8, 1), name="picture")
    x = layers.Conv2D(12, 5, padding="same", name="stem")(picture)
    x = layers.PReLU(shared_axes=[1, 2], name="stem_act")(x)
    skip = x
    for i in range(2):
        x = residual(x, 12, f"block_{i}")
    x = layers.Add()([x, skip])
    x = layers.Conv2D(24, 3, padding="same", name="expand")(x)
    x = SubPixel(2)(x)
    x = layers.Conv2D(1, 3, padding="same", name="to_grey")(x)
    coarse = layers.UpSampling2D(2)(picture)
    x = layers.Add()([x, coarse])
    return keras.Model(picture, layers.Reshape((16, 16))(x))


def loss(y_true, y_pred):
    """Charbonnier."""
    error = ops.sqrt(ops.square(y_true - y_pred) + 1e-4)
    return ops.mean(error, axis=(1, 2))
