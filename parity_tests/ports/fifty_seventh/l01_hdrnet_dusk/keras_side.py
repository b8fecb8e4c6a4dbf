"""Learned tone mapping of dusk pictures from trail cameras: a bilateral grid of affine colour transforms."""

import keras
import numpy as np
from keras import layers, ops

SIDE = 24
CELLS = 6
DEPTH = 4
KNOTS = 6


def upsample_table(cells, side):
    """Rows of linear interpolation from cell centres to pixel centres, held at the rim."""
    table = np.zeros((side, cells), np.float32)
    for i in range(side):
        at = min(max((i + 0.5) * cells / side - 0.5, 0.0), cells - 1.0)
        low = int(np.floor(at))
        high = min(low + 1, cells - 1)
        table[i, low] += 1.0 - (at - low)
        table[i, high] += at - low
    return table


@keras.saving.register_keras_serializable("dusk")
class GuideMap(layers.Layer):
    """Colour matrix, a curve of hinges a channel, and a mix squashed to (0, 1)."""

    def build(self, shape):
        channels = shape[-1]
        self.matrix = self.add_weight(name="matrix", shape=(channels, channels), initializer="identity")
        self.shift = self.add_weight(name="shift", shape=(channels,), initializer="zeros")
        self.slopes = self.add_weight(
            name="slopes", shape=(channels, KNOTS), initializer=keras.initializers.RandomNormal(0.2, 0.3)
        )
        self.mix = self.add_weight(
            name="mix", shape=(channels,), initializer=keras.initializers.Constant(2.0)
        )
        self.offset = self.add_weight(name="offset", shape=(), initializer=keras.initializers.Constant(-1.5))
        self.knots = np.arange(KNOTS, dtype=np.float32) / np.float32(8.0)

    def call(self, picture):
        x = ops.matmul(picture, self.matrix) + self.shift
        hinges = ops.relu(x[..., None] - ops.convert_to_tensor(self.knots, x.dtype))
        curve = ops.sum(hinges * self.slopes, axis=-1)
        return ops.sigmoid(ops.sum(curve * self.mix, axis=-1) + self.offset)


@keras.saving.register_keras_serializable("dusk")
class Slice(layers.Layer):
    """Reads the grid at each pixel's place and guide value."""

    def call(self, grid, guide):
        table = ops.convert_to_tensor(upsample_table(CELLS, SIDE), grid.dtype)
        grid = ops.einsum("byxdc,iy->bixdc", grid, table)
        grid = ops.einsum("bixdc,jx->bijdc", grid, table)
        level = ops.clip(guide * DEPTH - 0.5, 0.0, DEPTH - 1.0)
        slabs = ops.arange(DEPTH, dtype=grid.dtype)
        weight = ops.relu(1.0 - ops.abs(level[..., None] - slabs))
        return ops.einsum("bijd,bijdc->bijc", weight, grid)


@keras.saving.register_keras_serializable("dusk")
class ApplyAffine(layers.Layer):
    def call(self, picture, coefficients):
        shape = ops.shape(coefficients)
        affine = ops.reshape(coefficients, (-1, shape[1], shape[2], 3, 4))
        return ops.einsum("bijoc,bijc->bijo", affine[..., :3], picture) + affine[..., 3]


def build():
    picture = keras.Input((SIDE, SIDE, 3), name="picture")
    x = layers.AveragePooling2D(2, name="lowres")(picture)
    x = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu", name="splat1")(x)
    x = layers.Conv2D(16, 3, padding="same", activation="relu", name="splat2")(x)

    local = layers.Conv2D(16, 3, padding="same", activation="relu", name="local1")(x)
    local = layers.Conv2D(16, 3, padding="same", use_bias=False, name="local2")(local)

    whole = layers.Conv2D(12, 3, strides=2, padding="same", activation="relu", name="global1")(x)
    whole = layers.Flatten(name="global_flat")(whole)
    whole = layers.Dense(24, activation="relu", name="global_fc1")(whole)
    whole = layers.Dense(16, name="global_fc2")(whole)
    whole = layers.Reshape((1, 1, 16), name="global_spread")(whole)

    fused = layers.Activation("relu", name="fusion")(layers.Add(name="fusion_sum")([local, whole]))
    grid = layers.Conv2D(DEPTH * 12, 1, name="coefficients")(fused)
    grid = layers.Reshape((CELLS, CELLS, DEPTH, 12), name="grid")(grid)

    guide = GuideMap(name="guide")(picture)
    coefficients = Slice(name="slice")(grid, guide)
    enhanced = ApplyAffine(name="apply")(picture, coefficients)
    return keras.Model(picture, enhanced, name="dusk")
