"""Joints of a stick figure: two hourglasses one after another, each gives places by a soft maximum of its heat maps."""

import keras
import numpy as np
from keras import layers, ops

WIDTH, JOINTS = 8, 3


def residual(x, name):
    y = layers.BatchNormalization(name=f"{name}_norm1")(x)
    y = layers.Conv2D(WIDTH // 2, 1, name=f"{name}_conv1")(layers.ReLU()(y))
    y = layers.BatchNormalization(name=f"{name}_norm2")(y)
    y = layers.Conv2D(WIDTH, 3, padding="same", name=f"{name}_conv2")(layers.ReLU()(y))
    return layers.Add()([x, y])


def hourglass(x, name, depth=2):
    skip = residual(x, f"{name}_skip{depth}")
    y = residual(layers.MaxPooling2D(2)(x), f"{name}_down{depth}")
    y = hourglass(y, name, depth - 1) if depth > 1 else residual(y, f"{name}_bottom")
    return layers.Add()([skip, layers.UpSampling2D(2)(y)])


class SoftArgmax(layers.Layer):
    def compute_output_shape(self, shape):
        return (shape[0], shape[3], 2)

    def call(self, heat):
        height, width, joints = heat.shape[1:]
        p = ops.softmax(ops.reshape(heat, (-1, height * width, joints)), axis=1)
        rows, columns = np.meshgrid(np.linspace(0, 1, height), np.linspace(0, 1, width), indexing="ij")
        grid = np.stack([columns.ravel(), rows.ravel()], axis=1)
        return ops.einsum("bpj,pc->bjc", p, ops.convert_to_tensor(grid, dtype=p.dtype))


def build():
    picture = keras.Input((16, 16, 1), name="picture")
    x = layers.Conv2D(WIDTH, 3, strides=2, padding="same", name="stem")(picture)
    places = []
    for i in range(2):
        y = hourglass(x, f"stack{i}")
        y = layers.Conv2D(WIDTH, 1, activation="relu", name=f"features{i}")(y)
        heat = layers.Conv2D(JOINTS, 1, name=f"heat{i}")(y)
        places.append(SoftArgmax()(heat))
        if i == 0:
            back = layers.Conv2D(WIDTH, 1, name="features_back")(y)
            x = layers.Add()([x, back, layers.Conv2D(WIDTH, 1, name="heat_back")(heat)])
    return keras.Model(picture, ops.stack(places, axis=1))


def loss(joints, places):
    """The distances of all joints, of both stacks."""
    error = ops.sum(ops.square(places - joints[:, None]), axis=-1)
    return ops.mean(ops.sqrt(error + 1e-4), axis=(1, 2))
