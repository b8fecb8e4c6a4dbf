"""MaxViT (MBConv, windows, dilated grid) for lichens on bark."""

import keras
import numpy as np
from keras import layers, ops

PATCH = 4
CLASSES = 5


def relative_index(p):
    at = np.stack(np.meshgrid(np.arange(p), np.arange(p), indexing="ij"), -1).reshape(-1, 2)
    d = at[:, None] - at[None, :] + p - 1
    return (d[..., 0] * (2 * p - 1) + d[..., 1]).astype("int32")


class RelativeAttention(layers.Layer):
    """Self-attention among the tokens of (batch, windows, tokens, channels)."""

    def __init__(self, heads, patch=PATCH, **kwargs):
        super().__init__(**kwargs)
        self.heads, self.patch = heads, patch

    def build(self, shape):
        self.dim = shape[-1]
        self.head_dim = self.dim // self.heads
        self.qkv = layers.Dense(3 * self.dim, name="qkv")
        self.proj = layers.Dense(self.dim, name="proj")
        self.qkv.build(shape)
        self.proj.build(shape)
        self.table = self.add_weight(
            shape=((2 * self.patch - 1) ** 2, self.heads),
            initializer=keras.initializers.TruncatedNormal(stddev=0.2),
            name="bias_table",
        )
        self.index = relative_index(self.patch).reshape(-1)

    def call(self, x):
        _, w, n, _ = x.shape
        q, k, v = ops.split(self.qkv(x), 3, axis=-1)
        q, k, v = (ops.reshape(a, (-1, w, n, self.heads, self.head_dim)) for a in (q, k, v))
        scores = ops.einsum("bwihd,bwjhd->bwhij", q, k) * self.head_dim**-0.5
        bias = ops.reshape(ops.take(self.table, self.index, axis=0), (n, n, self.heads))
        scores = ops.softmax(scores + ops.transpose(bias, (2, 0, 1)), axis=-1)
        out = ops.einsum("bwhij,bwjhd->bwihd", scores, v)
        return self.proj(ops.reshape(out, (-1, w, n, self.dim)))


def to_windows(x, p):
    _, h, w, c = x.shape
    x = ops.reshape(x, (-1, h // p, p, w // p, p, c))
    return ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, h * w // p**2, p * p, c))


def from_windows(x, h, w, p):
    c = x.shape[-1]
    x = ops.reshape(x, (-1, h // p, w // p, p, p, c))
    return ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, h, w, c))


def to_grid(x, g):
    _, h, w, c = x.shape
    x = ops.reshape(x, (-1, g, h // g, g, w // g, c))
    return ops.reshape(ops.transpose(x, (0, 2, 4, 1, 3, 5)), (-1, h * w // g**2, g * g, c))


def from_grid(x, h, w, g):
    c = x.shape[-1]
    x = ops.reshape(x, (-1, h // g, w // g, g, g, c))
    return ops.reshape(ops.transpose(x, (0, 3, 1, 4, 2, 5)), (-1, h, w, c))


def norm_act(x, name):
    x = layers.BatchNormalization(name=name)(x)
    return layers.Activation("silu", name=name + "_act")(x)


def mbconv(x, width, stride, name):
    short = x
    if stride > 1:
        short = layers.AveragePooling2D(stride)(short)
    if short.shape[-1] != width:
        short = layers.Conv2D(width, 1, name=f"{name}_short")(short)
    inner = 2 * width
    x = layers.BatchNormalization(name=f"{name}_pre")(x)
    x = norm_act(layers.Conv2D(inner, 1, use_bias=False, name=f"{name}_expand")(x), f"{name}_bn1")
    x = layers.DepthwiseConv2D(3, stride, padding="same", use_bias=False, name=f"{name}_depth")(x)
    x = norm_act(x, f"{name}_bn2")
    s = layers.GlobalAveragePooling2D(keepdims=True)(x)
    s = layers.Dense(width // 4, activation="silu", name=f"{name}_squeeze")(s)
    s = layers.Dense(inner, activation="sigmoid", name=f"{name}_excite")(s)
    x = layers.Conv2D(width, 1, name=f"{name}_project")(layers.Multiply()([x, s]))
    return layers.Add()([short, x])


def attention(x, split, join, heads, name):
    _, h, w, c = x.shape
    y = layers.LayerNormalization(epsilon=1e-5, name=f"{name}_norm1")(x)
    y = layers.Lambda(split, arguments={"p" if split is to_windows else "g": PATCH})(y)
    y = RelativeAttention(heads, name=f"{name}_attention")(y)
    extra = {"h": h, "w": w, ("p" if join is from_windows else "g"): PATCH}
    x = layers.Add()([x, layers.Lambda(join, arguments=extra)(y)])
    y = layers.LayerNormalization(epsilon=1e-5, name=f"{name}_norm2")(x)
    y = layers.Dense(2 * c, activation="gelu", name=f"{name}_mlp1")(y)
    return layers.Add()([x, layers.Dense(c, name=f"{name}_mlp2")(y)])


def maxvit_block(x, width, stride, heads, name):
    x = mbconv(x, width, stride, f"{name}_mbconv")
    x = attention(x, to_windows, from_windows, heads, f"{name}_window")
    return attention(x, to_grid, from_grid, heads, f"{name}_grid")


def build():
    photo = keras.Input((32, 32, 3), name="photo")
    x = layers.Conv2D(12, 3, strides=2, padding="same", use_bias=False, name="stem")(photo)
    x = norm_act(x, "stem_bn")
    x = maxvit_block(x, 16, 2, 2, "stage1")
    x = maxvit_block(x, 24, 1, 3, "stage2")
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.LayerNormalization(epsilon=1e-5, name="head_norm")(x)
    x = layers.Dense(24, activation="tanh", name="head_hidden")(x)
    return keras.Model(photo, layers.Dense(CLASSES, name="logits")(x))
