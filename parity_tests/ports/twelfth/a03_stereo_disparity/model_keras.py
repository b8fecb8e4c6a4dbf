"""Depth from two pictures: shared features, a cost volume over shifts, a soft minimum over costs."""

import keras
from keras import layers, ops

SHIFTS = 5


class CostVolume(layers.Layer):
    """Features of the left picture beside those of the right one, moved to the right by 0, 1, ... pixels."""

    def call(self, inputs):
        left, right = inputs
        width = right.shape[2]
        planes = []
        for d in range(SHIFTS):
            moved = ops.pad(right, ((0, 0), (0, 0), (d, 0), (0, 0)))[:, :, :width]
            planes.append(ops.concatenate([left, moved], axis=-1))
        return ops.stack(planes, axis=1)


class SoftArgmin(layers.Layer):
    def call(self, cost):
        probability = ops.softmax(-cost, axis=1)
        shift = ops.reshape(ops.arange(SHIFTS, dtype=probability.dtype), (1, SHIFTS, 1, 1))
        return ops.sum(probability * shift, axis=1)


def build():
    left = keras.Input((10, 16, 1), name="left")
    right = keras.Input((10, 16, 1), name="right")
    features = keras.Sequential(
        [
            keras.Input((10, 16, 1)),
            layers.Conv2D(6, 3, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Conv2D(4, 3, padding="same"),
        ],
        name="features",
    )
    x = CostVolume()([features(left), features(right)])
    x = layers.Conv3D(6, 3, padding="same", activation="relu", name="aggregate")(x)
    x = layers.Conv3D(1, 3, padding="same", name="cost")(x)
    return keras.Model([left, right], SoftArgmin()(x[..., 0]))


def loss(truth, disparity):
    """Smooth L1 over the pixels that the scanner has measured; 0 is no measurement."""
    error = ops.abs(truth - disparity)
    value = ops.where(error < 1, 0.5 * ops.square(error), error - 0.5)
    valid = ops.cast(truth > 0, value.dtype)
    return ops.sum(value * valid, axis=(1, 2)) / ops.sum(valid, axis=(1, 2))
