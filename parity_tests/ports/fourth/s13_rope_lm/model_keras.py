import keras
import numpy as np
from keras import layers, ops


class RMSNorm(layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, x):
        return x * ops.rsqrt(ops.mean(ops.square(x), axis=-1, keepdims=True) + 1e-6) * self.scale


def rotary_tables(length, width, base=1000.0):
    angles = np.arange(length)[:, None] / base ** (np.arange(0, width, 2) / width)
    return np.cos(angles)[None, :, None], np.sin(angles)[None, :, None]


def rotate(x, cos, sin):
    even, odd = x[..., 0::2], x[..., 1::2]
    pairs = ops.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    return ops.reshape(pairs, ops.shape(x))


class GroupedAttention(layers.Layer):
    """Causal; two query heads share one head of keys and values."""

    def __init__(self, heads, groups, width, length, **kwargs):
        super().__init__(**kwargs)
        self.heads, self.groups, self.width, self.length = heads, groups, width, length
        self.q = layers.Dense(heads * width, use_bias=False, name="q")
        self.k = layers.Dense(groups * width, use_bias=False, name="k")
        self.v = layers.Dense(groups * width, use_bias=False, name="v")
        self.out = layers.Dense(heads * width, use_bias=False, name="out")

    def build(self, shape):
        for layer in (self.q, self.k, self.v):
            layer.build(shape)
        self.out.build((*shape[:-1], self.heads * self.width))

    def call(self, x):
        cos, sin = (ops.convert_to_tensor(t, x.dtype) for t in rotary_tables(self.length, self.width))
        q = rotate(ops.reshape(self.q(x), (-1, self.length, self.heads, self.width)), cos, sin)
        k = rotate(ops.reshape(self.k(x), (-1, self.length, self.groups, self.width)), cos, sin)
        v = ops.reshape(self.v(x), (-1, self.length, self.groups, self.width))
        k, v = (ops.repeat(t, self.heads // self.groups, axis=2) for t in (k, v))
        scores = ops.einsum("bqhd,bkhd->bhqk", q, k) / self.width**0.5
        scores = ops.where(np.tril(np.ones((self.length, self.length), bool)), scores, -1e30)
        y = ops.einsum("bhqk,bkhd->bqhd", ops.softmax(scores), v)
        return self.out(ops.reshape(y, (-1, self.length, self.heads * self.width)))


class Language(keras.Model):
    def __init__(self, vocabulary=60, length=20, heads=4, groups=2, width=8, depth=2):
        super().__init__(name="language")
        total = heads * width
        self.table = layers.Embedding(vocabulary, total, name="table")
        self.norms1 = [RMSNorm(name=f"norm1_{i}") for i in range(depth)]
        self.attention = [
            GroupedAttention(heads, groups, width, length, name=f"attention_{i}") for i in range(depth)
        ]
        self.norms2 = [RMSNorm(name=f"norm2_{i}") for i in range(depth)]
        self.gate = [
            layers.Dense(2 * total, activation="silu", use_bias=False, name=f"gate_{i}") for i in range(depth)
        ]
        self.up = [layers.Dense(2 * total, use_bias=False, name=f"up_{i}") for i in range(depth)]
        self.down = [layers.Dense(total, use_bias=False, name=f"down_{i}") for i in range(depth)]
        self.drop = layers.Dropout(0.125, name="drop")
        self.norm = RMSNorm(name="norm")

    def call(self, tokens, training=None):
        x = self.drop(self.table(tokens), training=training)
        for n1, attention, n2, gate, up, down in zip(
            self.norms1, self.attention, self.norms2, self.gate, self.up, self.down, strict=True
        ):
            x = x + self.drop(attention(n1(x)), training=training)
            h = n2(x)
            x = x + self.drop(down(gate(h) * up(h)), training=training)
        return ops.matmul(self.norm(x), ops.transpose(self.table.embeddings))


def build():
    model = Language()
    model(ops.zeros((1, 20), dtype="int32"))
    return model
