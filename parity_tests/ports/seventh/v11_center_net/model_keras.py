"""Objects as points: a heat map of centres for each class, and the size of the box at every place."""

import keras
from keras import layers, ops


class Coordinates(layers.Layer):
    """Adds the row and the column of each place, from -1 at the first to 1 at the last."""

    def call(self, x):
        _, h, w, _ = x.shape
        rows = 2 * ops.arange(h, dtype=x.dtype) / (h - 1) - 1
        columns = 2 * ops.arange(w, dtype=x.dtype) / (w - 1) - 1
        grid = ops.stack(ops.meshgrid(rows, columns, indexing="ij"), axis=-1)
        grid = ops.broadcast_to(grid[None], (ops.shape(x)[0], h, w, 2))
        return ops.concatenate([x, grid], axis=-1)

    def compute_output_shape(self, shape):
        return (*shape[:-1], shape[-1] + 2)


def conv_norm(x, filters, stride=1, activation=True):
    x = layers.Conv2D(filters, 3, strides=stride, padding="same", use_bias=False)(x)
    x = layers.GroupNormalization(groups=4, epsilon=1e-5)(x)
    return layers.ReLU()(x) if activation else x


def head(x, outputs, name, activation=None):
    x = layers.Conv2D(12, 3, padding="same", activation="relu", name=f"{name}_hidden")(x)
    return layers.Conv2D(outputs, 1, activation=activation, name=name)(x)


def build(classes=3):
    picture = keras.Input((16, 16, 3), name="picture")
    half = conv_norm(Coordinates()(picture), 8, stride=2)
    quarter = conv_norm(half, 16, stride=2)
    quarter = conv_norm(quarter, 16)
    deep = conv_norm(quarter, 16, stride=2)
    up = layers.UpSampling2D(2)(deep)
    x = conv_norm(up, 16, activation=False)
    x = layers.ReLU()(layers.Add()([x, quarter]))
    x = layers.Conv2DTranspose(8, 4, strides=2, padding="same", use_bias=False, name="to_half")(x)
    x = layers.GroupNormalization(groups=4, epsilon=1e-5)(x)
    x = layers.ReLU()(layers.Add()([x, half]))
    return keras.Model(picture, {"heat": head(x, classes, "heat"), "size": head(x, 2, "size", "softplus")})
