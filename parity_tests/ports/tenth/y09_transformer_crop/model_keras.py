"""A spatial transformer: finds a crop of the picture, samples it, and classifies what it sees there."""

import keras
import numpy as np
from keras import layers, ops


def gather_pixels(images, rows, columns):
    """images (B, H, W, C), integer rows and columns (B, N) -> (B, N, C)"""
    height, width, channels = images.shape[1:]
    flat = ops.reshape(images, (-1, height * width, channels))
    index = rows * width + columns
    return ops.take_along_axis(flat, ops.repeat(index[..., None], channels, axis=-1), axis=1)


class BilinearSampler(layers.Layer):
    def __init__(self, size, **kwargs):
        super().__init__(**kwargs)
        self.size = size

    def call(self, images, theta):
        height, width = images.shape[1], images.shape[2]
        ys, xs = np.meshgrid(np.linspace(-1, 1, self.size), np.linspace(-1, 1, self.size), indexing="ij")
        grid = np.stack([xs.ravel(), ys.ravel(), np.ones(self.size**2)], axis=0)
        source = ops.matmul(ops.reshape(theta, (-1, 2, 3)), ops.convert_to_tensor(grid, dtype=theta.dtype))

        # -1 and 1 are the centres of the outermost pixels; beyond them these go on.
        x = ops.clip((source[:, 0] + 1.0) * 0.5 * (width - 1), 0.0, width - 1.0)
        y = ops.clip((source[:, 1] + 1.0) * 0.5 * (height - 1), 0.0, height - 1.0)
        x0 = ops.stop_gradient(ops.floor(x))
        y0 = ops.stop_gradient(ops.floor(y))
        wx, wy = (x - x0)[..., None], (y - y0)[..., None]
        left, top = ops.cast(x0, "int32"), ops.cast(y0, "int32")
        right, bottom = ops.minimum(left + 1, width - 1), ops.minimum(top + 1, height - 1)

        upper = gather_pixels(images, top, left) * (1 - wx) + gather_pixels(images, top, right) * wx
        lower = gather_pixels(images, bottom, left) * (1 - wx) + gather_pixels(images, bottom, right) * wx
        return ops.reshape(upper * (1 - wy) + lower * wy, (-1, self.size, self.size, images.shape[-1]))


def build():
    image = keras.Input((12, 12, 1), name="x")
    h = layers.Conv2D(8, 3, activation="relu", name="locate_conv1")(image)
    h = layers.MaxPooling2D(2)(h)
    h = layers.Conv2D(12, 3, activation="relu", name="locate_conv2")(h)
    h = layers.Flatten()(h)
    h = layers.Dense(24, activation="relu", name="locate_hidden")(h)
    theta = layers.Dense(
        6,
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.02),
        bias_initializer=keras.initializers.Constant([0.87, 0.06, 0.03, -0.05, 0.91, -0.04]),
        name="theta",
    )(h)
    crop = BilinearSampler(8, name="sample")(image, theta)

    x = layers.Conv2D(12, 3, padding="same", activation="relu", name="conv1")(crop)
    x = layers.MaxPooling2D(2)(x)
    x = layers.Conv2D(16, 3, activation="relu", name="conv2")(x)
    x = layers.Flatten()(x)
    x = layers.Dropout(0.2)(x)
    return keras.Model(image, layers.Dense(10, name="classes")(x))
