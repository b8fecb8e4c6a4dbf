"""A small shifted-window transformer for 16x16 pictures."""

import keras
import numpy as np
from keras import layers, ops


def partition(x, size):
    _, h, w, c = x.shape
    x = ops.reshape(x, (-1, h // size, size, w // size, size, c))
    return ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, size * size, c))


def unpartition(x, size, h, w):
    c = x.shape[-1]
    x = ops.reshape(x, (-1, h // size, w // size, size, size, c))
    return ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, h, w, c))


def shift_mask(h, w, size, shift):
    """0 where two places of a window were neighbours before the shift, -100 elsewhere: (windows, n, n)."""
    regions = np.zeros((h, w))
    parts = [slice(0, -size), slice(-size, -shift), slice(-shift, None)]
    for i, rows in enumerate(parts):
        for j, columns in enumerate(parts):
            regions[rows, columns] = 3 * i + j
    regions = regions.reshape(h // size, size, w // size, size).transpose(0, 2, 1, 3).reshape(-1, size * size)
    return np.where(regions[:, None, :] == regions[:, :, None], 0.0, -100.0)


class WindowAttention(layers.Layer):
    def __init__(self, width, heads, size, **kwargs):
        super().__init__(**kwargs)
        self.heads, self.size, self.width = heads, size, width
        self.qkv = layers.Dense(3 * width)
        self.projection = layers.Dense(width)
        places = np.stack(np.meshgrid(np.arange(size), np.arange(size), indexing="ij")).reshape(2, -1)
        offset = places[:, :, None] - places[:, None, :] + size - 1
        self.index = offset[0] * (2 * size - 1) + offset[1]

    def build(self, shape):
        self.table = self.add_weight(
            shape=((2 * self.size - 1) ** 2, self.heads),
            initializer=keras.initializers.TruncatedNormal(stddev=0.02),
            name="table",
        )
        self.qkv.build(shape)
        self.projection.build(shape)

    def call(self, x, blocked=None):
        n = self.size**2
        qkv = ops.reshape(self.qkv(x), (-1, n, 3, self.heads, self.width // self.heads))
        q, k, v = ops.unstack(ops.transpose(qkv, (2, 0, 3, 1, 4)), axis=0)
        scores = ops.matmul(q * (self.width // self.heads) ** -0.5, ops.transpose(k, (0, 1, 3, 2)))
        bias = ops.reshape(ops.take(self.table, self.index.reshape(-1), axis=0), (n, n, self.heads))
        scores = scores + ops.transpose(bias, (2, 0, 1))
        if blocked is not None:
            blocked = ops.convert_to_tensor(blocked, dtype=scores.dtype)
            scores = ops.reshape(scores, (-1, blocked.shape[0], self.heads, n, n)) + blocked[None, :, None]
            scores = ops.reshape(scores, (-1, self.heads, n, n))
        x = ops.matmul(ops.softmax(scores), v)
        return self.projection(ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, n, self.width)))


class SwinBlock(layers.Layer):
    def __init__(self, width, heads, size, shift, **kwargs):
        super().__init__(**kwargs)
        self.size, self.shift = size, shift
        self.norm1 = layers.LayerNormalization(epsilon=1e-5)
        self.attention = WindowAttention(width, heads, size)
        self.norm2 = layers.LayerNormalization(epsilon=1e-5)
        self.mlp = keras.Sequential([layers.Dense(2 * width, activation="gelu"), layers.Dense(width)])

    def build(self, shape):
        self.blocked = shift_mask(shape[1], shape[2], self.size, self.shift) if self.shift else None
        self.norm1.build(shape)
        self.attention.build((None, self.size**2, shape[-1]))
        self.norm2.build(shape)
        self.mlp.build(shape)

    def call(self, x):
        _, h, w, _ = x.shape
        y = self.norm1(x)
        if self.shift:
            y = ops.roll(y, (-self.shift, -self.shift), axis=(1, 2))
        y = unpartition(self.attention(partition(y, self.size), blocked=self.blocked), self.size, h, w)
        if self.shift:
            y = ops.roll(y, (self.shift, self.shift), axis=(1, 2))
        x = x + y
        return x + self.mlp(self.norm2(x))


class PatchMerging(layers.Layer):
    def __init__(self, width, **kwargs):
        super().__init__(**kwargs)
        self.norm = layers.LayerNormalization(epsilon=1e-5)
        self.reduction = layers.Dense(width, use_bias=False)

    def call(self, x):
        x = ops.concatenate([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], axis=-1)
        return self.reduction(self.norm(x))


def build():
    image = keras.Input((16, 16, 3), name="image")
    x = layers.Conv2D(16, 2, strides=2)(image)
    x = layers.LayerNormalization(epsilon=1e-5)(x)
    x = SwinBlock(16, 2, 4, 0)(x)
    x = SwinBlock(16, 2, 4, 2)(x)
    x = PatchMerging(32)(x)
    x = SwinBlock(32, 4, 4, 0)(x)
    x = layers.LayerNormalization(epsilon=1e-5)(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(image, layers.Dense(5)(x))
