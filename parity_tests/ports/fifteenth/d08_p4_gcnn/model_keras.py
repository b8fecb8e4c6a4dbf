"""Rotation-equivariant p4-CNN (Cohen & Welling) for galaxies seen from above."""

import keras
from keras import layers, ops


def rotate(kernel, times):
    """A kernel (height, width, ...) turned by quarter turns, counterclockwise."""
    for _ in range(times % 4):
        kernel = ops.flip(ops.swapaxes(kernel, 0, 1), axis=0)
    return kernel


class LiftConv(layers.Layer):
    """Z2 -> p4; output (batch, h, w, 4, filters)."""

    def __init__(self, filters, size=3, **kwargs):
        super().__init__(**kwargs)
        self.filters, self.size = filters, size

    def build(self, shape):
        self.kernel = self.add_weight(
            shape=(self.size, self.size, shape[-1], self.filters), initializer="he_normal", name="kernel"
        )

    def call(self, x):
        outs = [ops.conv(x, rotate(self.kernel, r), padding="same") for r in range(4)]
        return ops.stack(outs, axis=3)


class GroupConv(layers.Layer):
    """p4 -> p4: kernels are turned in the plane and shifted cyclically over the orientations."""

    def __init__(self, filters, size=3, **kwargs):
        super().__init__(**kwargs)
        self.filters, self.size = filters, size

    def build(self, shape):
        self.inputs_ = shape[-1]
        self.kernel = self.add_weight(
            shape=(self.size, self.size, 4, shape[-1], self.filters), initializer="he_normal", name="kernel"
        )

    def call(self, x):
        h, w = x.shape[1:3]
        x = ops.reshape(x, (-1, h, w, 4 * self.inputs_))
        outs = []
        for r in range(4):
            k = ops.roll(rotate(self.kernel, r), r, axis=2)
            k = ops.reshape(k, (self.size, self.size, 4 * self.inputs_, self.filters))
            outs.append(ops.conv(x, k, padding="same"))
        return ops.stack(outs, axis=3)


class PlanePool(layers.Layer):
    def call(self, x):
        h, w, c = x.shape[1], x.shape[2], x.shape[4]
        x = ops.max_pool(ops.reshape(x, (-1, h, w, 4 * c)), 2, 2)
        return ops.reshape(x, (-1, h // 2, w // 2, 4, c))


class OrientationPool(layers.Layer):
    def call(self, x):
        return ops.max(x, axis=3)


def build():
    model = keras.Sequential([keras.Input((16, 16, 1)), LiftConv(6, 5)])
    for filters in (8, 8):
        model.add(layers.BatchNormalization())
        model.add(layers.Activation("relu"))
        model.add(PlanePool())
        model.add(GroupConv(filters))
    model.add(layers.BatchNormalization())
    model.add(layers.Activation("relu"))
    model.add(OrientationPool())
    model.add(layers.GlobalAveragePooling2D())
    model.add(layers.Dense(5))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
