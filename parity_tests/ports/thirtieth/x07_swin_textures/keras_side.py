"""Miniature Swin transformer (window + shifted-window attention, patch merging)."""

import keras
import numpy as np
from keras import layers, ops

WINDOW = 4


def windows(x, w):
    _, h, ww, c = x.shape
    x = ops.reshape(x, (-1, h // w, w, ww // w, w, c))
    return ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, w * w, c))


def unwindows(x, w, h, ww):
    c = x.shape[-1]
    x = ops.reshape(x, (-1, h // w, ww // w, w, w, c))
    return ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, h, ww, c))


def relative_index(w):
    yy, xx = np.meshgrid(np.arange(w), np.arange(w), indexing="ij")
    c = np.stack([yy.ravel(), xx.ravel()])
    rel = c[:, :, None] - c[:, None, :] + (w - 1)
    return rel[0] * (2 * w - 1) + rel[1]


def shift_mask(h, ww, w, s):
    region = np.zeros((h, ww), "int32")
    n = 0
    for ys in (slice(0, -w), slice(-w, -s), slice(-s, None)):
        for xs in (slice(0, -w), slice(-w, -s), slice(-s, None)):
            region[ys, xs] = n
            n += 1
    r = region.reshape(h // w, w, ww // w, w).transpose(0, 2, 1, 3).reshape(-1, w * w)
    return np.where(r[:, :, None] == r[:, None, :], 0.0, -100.0)


class WindowAttention(layers.Layer):
    def __init__(self, dim, heads, mask=None, **kw):
        super().__init__(**kw)
        self.dim, self.heads, self.mask_value = dim, heads, mask
        self.qkv = layers.Dense(3 * dim, name="qkv")
        self.proj = layers.Dense(dim, name="proj")
        self.index = relative_index(WINDOW).ravel()

    def build(self, shape):
        self.qkv.build(shape)
        self.proj.build(shape)
        self.table = self.add_weight(
            name="bias_table",
            shape=((2 * WINDOW - 1) ** 2, self.heads),
            initializer=keras.initializers.TruncatedNormal(stddev=0.02),
        )

    def call(self, x):
        n, d = WINDOW * WINDOW, self.dim // self.heads
        qkv = ops.reshape(self.qkv(x), (-1, n, 3, self.heads, d))
        q, k, v = ops.unstack(ops.transpose(qkv, (2, 0, 3, 1, 4)), axis=0)
        a = ops.matmul(q * d**-0.5, ops.swapaxes(k, -1, -2))
        bias = ops.reshape(ops.take(self.table, self.index, axis=0), (n, n, self.heads))
        a = a + ops.transpose(bias, (2, 0, 1))[None]
        if self.mask_value is not None:
            nw = self.mask_value.shape[0]
            a = ops.reshape(a, (-1, nw, self.heads, n, n))
            a = a + ops.convert_to_tensor(self.mask_value, dtype=a.dtype)[None, :, None]
            a = ops.reshape(a, (-1, self.heads, n, n))
        out = ops.matmul(ops.softmax(a), v)
        out = ops.reshape(ops.transpose(out, (0, 2, 1, 3)), (-1, n, self.dim))
        return self.proj(out)


def swin_block(x, dim, heads, shift, name):
    _, h, w, _ = x.shape
    y = layers.LayerNormalization(epsilon=1e-5, name=name + "_norm1")(x)
    mask = None
    if shift:
        y = ops.roll(y, (-shift, -shift), axis=(1, 2))
        mask = shift_mask(h, w, WINDOW, shift)
    y = windows(y, WINDOW)
    y = WindowAttention(dim, heads, mask, name=name + "_attn")(y)
    y = unwindows(y, WINDOW, h, w)
    if shift:
        y = ops.roll(y, (shift, shift), axis=(1, 2))
    x = layers.Add()([x, y])
    y = layers.LayerNormalization(epsilon=1e-5, name=name + "_norm2")(x)
    y = layers.Dense(2 * dim, name=name + "_fc1")(y)
    y = keras.activations.gelu(y, approximate=False)
    y = layers.Dense(dim, name=name + "_fc2")(y)
    return layers.Add()([x, y])


def patch_merge(x, dim, name):
    x = ops.concatenate([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], axis=-1)
    x = layers.LayerNormalization(epsilon=1e-5, name=name + "_norm")(x)
    return layers.Dense(dim, use_bias=False, name=name + "_reduce")(x)


def build():
    inp = keras.Input((16, 16, 3), name="x")
    x = layers.Conv2D(16, 2, strides=2, name="patch")(inp)
    x = layers.LayerNormalization(epsilon=1e-5, name="patch_norm")(x)
    x = swin_block(x, 16, 2, 0, "s0b0")
    x = swin_block(x, 16, 2, 2, "s0b1")
    x = patch_merge(x, 24, "merge")
    x = swin_block(x, 24, 3, 0, "s1b0")
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inp, layers.Dense(7, name="head")(x), name="mini_swin")
