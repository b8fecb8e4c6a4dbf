"""Kinds of storm cells on radar crops: a small Swin transformer (windows of 4x4 tokens, shifted in every other block)."""

import keras
import numpy as np
from keras import layers, ops

SIDE, WIN, DIM, HEADS = 8, 4, 12, 3


def partition(x, c):
    x = ops.reshape(x, (-1, SIDE // WIN, WIN, SIDE // WIN, WIN, c))
    return ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, (SIDE // WIN) ** 2, WIN * WIN, c))


def merge(x, c):
    x = ops.reshape(x, (-1, SIDE // WIN, SIDE // WIN, WIN, WIN, c))
    return ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, SIDE, SIDE, c))


def relative_index():
    c = np.stack(np.meshgrid(np.arange(WIN), np.arange(WIN), indexing="ij")).reshape(2, -1)
    d = c[:, :, None] - c[:, None, :] + WIN - 1
    return d[0] * (2 * WIN - 1) + d[1]


def shift_mask(shift):
    region = np.zeros((1, SIDE, SIDE, 1), "int64")
    cuts = (slice(0, -WIN), slice(-WIN, -shift), slice(-shift, None))
    for i, a in enumerate(cuts):
        for j, b in enumerate(cuts):
            region[:, a, b] = 3 * i + j
    r = np.asarray(partition(ops.convert_to_tensor(region), 1))[0, :, :, 0]
    return np.where(r[:, :, None] == r[:, None, :], 0.0, -1e9)  # (windows, 16, 16)


class WindowAttention(layers.Layer):
    def __init__(self, shift, **kw):
        super().__init__(**kw)
        self.shift = shift
        self.qkv = layers.Dense(3 * DIM, name="qkv")
        self.proj = layers.Dense(DIM, name="proj")

    def build(self, shape):
        self.qkv.build(shape)
        self.proj.build(shape)
        self.relative_bias = self.add_weight(
            name="relative_bias",
            shape=((2 * WIN - 1) ** 2, HEADS),
            initializer=keras.initializers.TruncatedNormal(stddev=0.2),
        )
        self.lookup = np.eye((2 * WIN - 1) ** 2)[relative_index()]  # (16, 16, 49)
        self.mask = shift_mask(self.shift) if self.shift else None

    def call(self, x):
        if self.shift:
            x = ops.roll(x, (-self.shift, -self.shift), axis=(1, 2))
        w = partition(x, DIM)
        qkv = ops.reshape(self.qkv(w), (-1, w.shape[1], WIN * WIN, 3, HEADS, DIM // HEADS))
        q, k, v = (qkv[:, :, :, i] for i in range(3))
        s = ops.einsum("bwihd,bwjhd->bwhij", q, k) / np.sqrt(DIM // HEADS)
        s = s + ops.einsum(
            "ijr,rh->hij", ops.convert_to_tensor(self.lookup, dtype=s.dtype), self.relative_bias
        )
        if self.mask is not None:
            s = s + ops.convert_to_tensor(self.mask[None, :, None], dtype=s.dtype)
        y = ops.einsum("bwhij,bwjhd->bwihd", ops.softmax(s, axis=-1), v)
        y = merge(self.proj(ops.reshape(y, (-1, w.shape[1], WIN * WIN, DIM))), DIM)
        return ops.roll(y, (self.shift, self.shift), axis=(1, 2)) if self.shift else y


class Patches(layers.Layer):
    """(16, 16) -> 8 x 8 patches of 2 x 2 pixels."""

    def call(self, x):
        x = ops.transpose(ops.reshape(x, (-1, SIDE, 2, SIDE, 2)), (0, 1, 3, 2, 4))
        return ops.reshape(x, (-1, SIDE, SIDE, 4))


def build():
    inp = keras.Input((16, 16), name="x")
    h = layers.Dense(DIM, name="embed")(Patches(name="patches")(inp))
    for i, shift in enumerate((0, 2)):
        h = layers.Add()(
            [
                h,
                WindowAttention(shift, name=f"attention{i}")(
                    layers.LayerNormalization(epsilon=1e-5, name=f"norm{i}_a")(h)
                ),
            ]
        )
        m = layers.Dense(24, activation="silu", name=f"mlp{i}_a")(
            layers.LayerNormalization(epsilon=1e-5, name=f"norm{i}_b")(h)
        )
        h = layers.Add()([h, layers.Dense(DIM, name=f"mlp{i}_b")(m)])
    h = layers.LayerNormalization(epsilon=1e-5, name="norm")(h)
    return keras.Model(inp, layers.Dense(4, name="head")(layers.GlobalAveragePooling2D()(h)))


def optimizer():
    opt = keras.optimizers.AdamW(2.0**-8, weight_decay=0.1)
    opt.exclude_from_weight_decay(
        var_names=["bias", "gamma", "beta"]
    )  # "bias" takes the relative_bias tables too
    return opt
