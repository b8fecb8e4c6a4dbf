import keras
import numpy as np
from keras import layers, ops

VOCAB, LENGTH, WIDTH, HEADS, GROUPS, LAYERS = 48, 20, 32, 4, 2, 2


class Norm(layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, x):
        return x * ops.rsqrt(ops.mean(x * x, axis=-1, keepdims=True) + 1e-6) * self.scale


def rotate(x):
    """Rotary positions: the first half of a head is paired with the second."""
    half = x.shape[-1] // 2
    angles = np.outer(np.arange(x.shape[1]), 10000.0 ** (-np.arange(half) / half))
    cos = ops.cast(np.cos(angles)[:, None], x.dtype)
    sin = ops.cast(np.sin(angles)[:, None], x.dtype)
    a, b = x[..., :half], x[..., half:]
    return ops.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


class GroupedAttention(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dim = WIDTH // HEADS
        self.query = layers.EinsumDense("btd,dhk->bthk", (None, HEADS, self.dim), name="query")
        self.key = layers.EinsumDense("btd,dgk->btgk", (None, GROUPS, self.dim), name="key")
        self.value = layers.EinsumDense("btd,dgk->btgk", (None, GROUPS, self.dim), name="value")
        self.out = layers.EinsumDense("bthk,hkd->btd", (None, WIDTH), name="out")

    def call(self, x):
        q, k, v = rotate(self.query(x)), rotate(self.key(x)), self.value(x)
        k, v = (ops.repeat(t, HEADS // GROUPS, axis=2) for t in (k, v))
        scores = ops.einsum("bqhk,bshk->bhqs", q, k) * self.dim**-0.5
        future = np.triu(np.ones((x.shape[1], x.shape[1]), bool), 1)
        scores = ops.where(future, -1e9, scores)
        return self.out(ops.einsum("bhqs,bshk->bqhk", ops.softmax(scores), v))


class Block(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.norm1, self.norm2 = Norm(name="norm1"), Norm(name="norm2")
        self.attention = GroupedAttention(name="attention")
        self.gate = layers.Dense(64, activation="silu", use_bias=False, name="gate")
        self.up = layers.Dense(64, use_bias=False, name="up")
        self.down = layers.Dense(WIDTH, use_bias=False, name="down")
        self.dropout = layers.Dropout(0.1)

    def call(self, x, training=None):
        x = x + self.dropout(self.attention(self.norm1(x)), training=training)
        h = self.norm2(x)
        return x + self.dropout(self.down(self.gate(h) * self.up(h)), training=training)


class LanguageModel(keras.Model):
    def __init__(self):
        super().__init__()
        self.tokens = layers.Embedding(VOCAB, WIDTH, name="tokens")
        self.blocks = [Block(name=f"block{i}") for i in range(LAYERS)]
        self.norm = Norm(name="final")

    def call(self, ids, training=None):
        x = self.tokens(ids) * WIDTH**0.5
        for block in self.blocks:
            x = block(x, training=training)
        return ops.matmul(self.norm(x), ops.transpose(self.tokens.embeddings))


def build():
    return LanguageModel()
