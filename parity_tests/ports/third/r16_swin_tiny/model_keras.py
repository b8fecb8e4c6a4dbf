import keras
import numpy as np
from keras import layers, ops


def window_partition(x, size):
    _, h, w, c = x.shape
    x = ops.reshape(x, (-1, h // size, size, w // size, size, c))
    x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
    return ops.reshape(x, (-1, size * size, c))


def window_reverse(windows, size, h, w, c):
    x = ops.reshape(windows, (-1, h // size, w // size, size, size, c))
    x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
    return ops.reshape(x, (-1, h, w, c))


class WindowAttention(layers.Layer):
    def __init__(self, dim, window, heads, **kwargs):
        super().__init__(**kwargs)
        self.dim, self.window, self.heads = dim, window, heads
        self.qkv = layers.Dense(dim * 3, name="qkv")
        self.proj = layers.Dense(dim, name="proj")
        coords = np.stack(np.meshgrid(np.arange(window), np.arange(window), indexing="ij")).reshape(2, -1)
        rel = coords[:, :, None] - coords[:, None, :] + window - 1
        self.index = (rel[0] * (2 * window - 1) + rel[1]).reshape(-1)

    def build(self, shape):
        table = ((2 * self.window - 1) ** 2, self.heads)
        self.bias_table = self.add_weight(
            shape=table, initializer="random_normal", name="relative_position_bias_table"
        )
        self.qkv.build(shape)
        self.proj.build(shape)

    def call(self, x):
        n, d = self.window**2, self.dim // self.heads
        qkv = ops.transpose(ops.reshape(self.qkv(x), (-1, n, 3, self.heads, d)), (2, 0, 3, 1, 4))
        q, k, v = qkv[0] * d**-0.5, qkv[1], qkv[2]
        bias = ops.reshape(ops.take(self.bias_table, self.index, axis=0), (n, n, self.heads))
        attn = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) + ops.transpose(bias, (2, 0, 1))[None]
        x = ops.transpose(ops.matmul(ops.softmax(attn, axis=-1), v), (0, 2, 1, 3))
        return self.proj(ops.reshape(x, (-1, n, self.dim)))


class SwinBlock(layers.Layer):
    def __init__(self, dim, heads, window=4, shift=0, **kwargs):
        super().__init__(**kwargs)
        self.window, self.shift = window, shift
        self.norm1 = layers.LayerNormalization(epsilon=1e-5, name="norm1")
        self.attn = WindowAttention(dim, window, heads, name="attn")
        self.norm2 = layers.LayerNormalization(epsilon=1e-5, name="norm2")
        self.fc1 = layers.Dense(dim * 2, name="fc1")
        self.fc2 = layers.Dense(dim, name="fc2")

    def call(self, x):
        _, h, w, c = x.shape
        y = self.norm1(x)
        if self.shift:
            y = ops.roll(y, (-self.shift, -self.shift), axis=(1, 2))
        y = self.attn(window_partition(y, self.window))
        y = window_reverse(y, self.window, h, w, c)
        if self.shift:
            y = ops.roll(y, (self.shift, self.shift), axis=(1, 2))
        x = x + y
        y = keras.activations.gelu(self.fc1(self.norm2(x)), approximate=True)
        return x + self.fc2(y)


class PatchMerging(layers.Layer):
    def __init__(self, dim, **kwargs):
        super().__init__(**kwargs)
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.reduction = layers.Dense(2 * dim, use_bias=False, name="reduction")

    def call(self, x):
        parts = [x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]]
        return self.reduction(self.norm(ops.concatenate(parts, axis=-1)))


def build(classes=5):
    image = keras.Input((16, 16, 3), name="image")
    x = layers.Conv2D(12, 2, strides=2, name="patch_embed")(image)
    x = SwinBlock(12, 2, shift=0, name="stage0_block0")(x)
    x = SwinBlock(12, 2, shift=2, name="stage0_block1")(x)
    x = PatchMerging(12, name="merge")(x)
    x = SwinBlock(24, 3, shift=0, name="stage1_block0")(x)
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(image, layers.Dense(classes, name="head")(x))
