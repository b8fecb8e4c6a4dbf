"""Eye landmarks (left corner, pupil, right corner) by soft-argmax over heatmaps."""

import keras
from keras import layers, ops

SIZE, N_POINTS = 20, 3


class SoftArgmax(layers.Layer):
    """Heatmaps (N, H, W, K) -> expected (x, y) of every map, in pixel centres of [0, 1].

    The sharpness of the softmax is trained.
    """

    def build(self, input_shape):
        self.sharpness = self.add_weight(
            name="sharpness", shape=(input_shape[-1],), initializer=keras.initializers.Constant(0.5)
        )
        super().build(input_shape)

    def call(self, maps):
        _, height, width, points = maps.shape
        flat = ops.reshape(maps, (-1, height * width, points))
        prob = ops.softmax(flat * ops.softplus(self.sharpness), axis=1)
        rows = (ops.arange(height, dtype=maps.dtype) + 0.5) / height
        cols = (ops.arange(width, dtype=maps.dtype) + 0.5) / width
        yy, xx = ops.meshgrid(rows, cols, indexing="ij")
        grid = ops.stack([ops.reshape(xx, (-1,)), ops.reshape(yy, (-1,))], axis=-1)
        return ops.reshape(ops.einsum("npk,pc->nkc", prob, grid), (-1, 2 * points))


def stage(x, filters, name, strides=1):
    x = layers.Conv2D(filters, 3, strides=strides, padding="same", use_bias=False, name=name + "_conv")(x)
    x = layers.GroupNormalization(groups=4, epsilon=1e-3, name=name + "_norm")(x)
    return layers.Activation("silu", name=name + "_act")(x)


def build():
    eye = keras.Input((SIZE, SIZE, 1), name="eye")
    x = stage(eye, 12, "stage1")
    x = layers.MaxPooling2D(3, strides=2, padding="same", name="pool")(x)
    x = stage(x, 16, "stage2")
    x = layers.Concatenate(name="wide")([x, stage(x, 8, "stage3")])
    maps = layers.Conv2D(N_POINTS, 1, use_bias=False, name="heatmaps")(x)
    return keras.Model(eye, SoftArgmax(name="soft_argmax")(maps), name="eye_points")
