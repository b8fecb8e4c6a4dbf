import keras
import numpy as np
from keras import layers, ops


def windows(x, w):
    h, wd, c = x.shape[1:]
    x = ops.reshape(x, (-1, h // w, w, wd // w, w, c))
    return ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, (h // w) * (wd // w), w * w, c))


def unwindows(x, w, h, wd):
    c = x.shape[-1]
    x = ops.reshape(x, (-1, h // w, wd // w, w, w, c))
    return ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, h, wd, c))


def relative_index(w):
    coords = np.stack(np.meshgrid(np.arange(w), np.arange(w), indexing="ij")).reshape(2, -1)
    rel = coords[:, :, None] - coords[:, None, :] + w - 1
    return rel[0] * (2 * w - 1) + rel[1]


def shift_mask(side, w, s):
    zone = np.zeros((1, side, side, 1), "float32")
    cuts = (slice(0, -w), slice(-w, -s), slice(-s, None))
    k = 0
    for a in cuts:
        for b in cuts:
            zone[:, a, b] = k
            k += 1
    z = zone.reshape(side // w, w, side // w, w).transpose(0, 2, 1, 3).reshape(-1, w * w)
    return np.where(z[:, :, None] != z[:, None, :], -100.0, 0.0)


class SwinBlock(layers.Layer):
    def __init__(self, dim, heads, window, shift, **kw):
        super().__init__(**kw)
        self.dim, self.heads, self.window, self.shift = dim, heads, window, shift
        self.norm1 = layers.LayerNormalization(epsilon=1e-5, name="norm1")
        self.qkv = layers.Dense(3 * dim, name="qkv")
        self.proj = layers.Dense(dim, name="proj")
        self.norm2 = layers.LayerNormalization(epsilon=1e-5, name="norm2")
        self.fc1 = layers.Dense(2 * dim, activation="gelu", name="fc1")
        self.fc2 = layers.Dense(dim, name="fc2")

    def build(self, shape):
        self.table = self.add_weight(
            shape=((2 * self.window - 1) ** 2, self.heads),
            initializer=keras.initializers.RandomNormal(stddev=0.5),
            name="bias_table",
        )
        self.norm1.build(shape)
        self.qkv.build(shape)
        self.proj.build(shape)
        self.norm2.build(shape)
        self.fc1.build(shape)
        self.fc2.build((*shape[:-1], 2 * self.dim))

    def attend(self, x, side):
        w, hd = self.window, self.dim // self.heads
        nw, n = (side // w) ** 2, w * w
        qkv = ops.reshape(self.qkv(x), (-1, nw, n, 3, self.heads, hd))
        q, k, v = [ops.transpose(qkv[:, :, :, i], (0, 1, 3, 2, 4)) for i in range(3)]
        s = ops.matmul(q * hd**-0.5, ops.transpose(k, (0, 1, 2, 4, 3)))
        bias = ops.reshape(ops.take(self.table, relative_index(w).reshape(-1), axis=0), (n, n, self.heads))
        s = s + ops.transpose(bias, (2, 0, 1))
        if self.shift:
            m = ops.convert_to_tensor(shift_mask(side, w, self.shift), dtype=s.dtype)
            s = s + m[:, None]
        o = ops.matmul(ops.softmax(s, axis=-1), v)
        return self.proj(ops.reshape(ops.transpose(o, (0, 1, 3, 2, 4)), (-1, nw, n, self.dim)))

    def call(self, x):
        side, s = x.shape[1], self.shift
        h = self.norm1(x)
        if s:
            h = ops.roll(h, (-s, -s), axis=(1, 2))
        h = unwindows(self.attend(windows(h, self.window), side), self.window, side, side)
        if s:
            h = ops.roll(h, (s, s), axis=(1, 2))
        x = x + h
        return x + self.fc2(self.fc1(self.norm2(x)))


class Merge(layers.Layer):
    def __init__(self, dim, **kw):
        super().__init__(**kw)
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.reduce = layers.Dense(dim, use_bias=False, name="reduce")

    def call(self, x):
        x = ops.concatenate([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], axis=-1)
        return self.reduce(self.norm(x))


def build():
    return keras.Sequential(
        [
            keras.Input((16, 16, 3), name="x"),
            layers.Conv2D(8, 2, strides=2, name="patch"),
            SwinBlock(8, 2, 4, 0, name="plain"),
            SwinBlock(8, 2, 4, 2, name="shifted"),
            Merge(12, name="merge"),
            SwinBlock(12, 3, 4, 0, name="last"),
            layers.LayerNormalization(epsilon=1e-5, name="norm"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(4, name="head"),
        ]
    )
