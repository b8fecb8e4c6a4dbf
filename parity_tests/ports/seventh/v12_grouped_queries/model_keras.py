"""A small language model: grouped queries, linear biases for positions, experts in place of the feed-forward part."""

import math

import keras
import numpy as np
from keras import layers, ops


class RMSNorm(layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, x):
        return x * ops.rsqrt(ops.mean(ops.square(x), axis=-1, keepdims=True) + 1e-6) * self.scale


class Attention(layers.Layer):
    def __init__(self, width, heads, groups, **kwargs):
        super().__init__(**kwargs)
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.query = layers.Dense(heads * self.size, use_bias=False)
        self.key = layers.Dense(groups * self.size, use_bias=False)
        self.value = layers.Dense(groups * self.size, use_bias=False)
        self.out = layers.Dense(width, use_bias=False)
        self.slopes = 2.0 ** (-8.0 * (np.arange(heads) + 1) / heads)

    def call(self, x):
        n = x.shape[1]
        shared = self.heads // self.groups
        q = ops.reshape(self.query(x), (-1, n, self.groups, shared, self.size))
        k = ops.reshape(self.key(x), (-1, n, self.groups, self.size))
        v = ops.reshape(self.value(x), (-1, n, self.groups, self.size))
        scores = ops.einsum("bqgsd,bkgd->bgsqk", q, k) / math.sqrt(self.size)
        distance = np.arange(n)[None, :] - np.arange(n)[:, None]  # of the key from the query
        bias = (self.slopes[:, None, None] * distance).reshape(self.groups, shared, n, n)
        scores = scores + ops.convert_to_tensor(bias, dtype=scores.dtype)
        scores = ops.where(ops.convert_to_tensor(distance <= 0), scores, -1e9)
        x = ops.einsum("bgsqk,bkgd->bqgsd", ops.softmax(scores), v)
        return self.out(ops.reshape(x, (-1, n, self.heads * self.size)))


class Experts(layers.Layer):
    """SwiGLU experts; each word goes to two of them, weighted by a softmax over these two."""

    def __init__(self, experts, hidden, **kwargs):
        super().__init__(**kwargs)
        self.experts, self.hidden = experts, hidden
        self.router = layers.Dense(experts, use_bias=False)

    def build(self, shape):
        init = keras.initializers.RandomNormal(stddev=0.1)
        self.router.build(shape)
        self.gate = self.add_weight(
            shape=(self.experts, shape[-1], self.hidden), initializer=init, name="gate"
        )
        self.up = self.add_weight(shape=(self.experts, shape[-1], self.hidden), initializer=init, name="up")
        self.down = self.add_weight(
            shape=(self.experts, self.hidden, shape[-1]), initializer=init, name="down"
        )

    def call(self, x):
        scores = self.router(x)
        best, where = ops.top_k(scores, 2)
        chosen = ops.one_hot(where, self.experts, dtype=x.dtype)  # b, n, 2, experts
        weights = ops.einsum("bnk,bnke->bne", ops.softmax(best), chosen)
        h = ops.silu(ops.einsum("bnd,edh->bneh", x, self.gate)) * ops.einsum("bnd,edh->bneh", x, self.up)
        return ops.einsum("bneh,ehd,bne->bnd", h, self.down, weights)


class Block(layers.Layer):
    def __init__(self, width, rate=0.1, **kwargs):
        super().__init__(**kwargs)
        self.norm1, self.attention = RMSNorm(), Attention(width, heads=4, groups=2)
        self.norm2, self.experts = RMSNorm(), Experts(4, 24)
        self.drop = layers.Dropout(rate)

    def call(self, x, training=False):
        x = x + self.drop(self.attention(self.norm1(x)), training=training)
        return x + self.drop(self.experts(self.norm2(x)), training=training)


class LanguageModel(keras.Model):
    def __init__(self, vocabulary=32, width=16, depth=2, **kwargs):
        super().__init__(**kwargs)
        self.embedding = layers.Embedding(vocabulary, width)
        self.blocks = [Block(width) for _ in range(depth)]
        self.norm = RMSNorm()
        self.head = layers.Dense(vocabulary, use_bias=False)

    def call(self, words, training=False):
        x = self.embedding(words) * math.sqrt(self.embedding.output_dim)
        for block in self.blocks:
            x = block(x, training=training)
        return 15 * ops.tanh(self.head(self.norm(x)) / 15)


def build():
    model = LanguageModel()
    model(np.zeros((1, 16), "int32"))
    return model
