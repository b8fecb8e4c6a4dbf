import math

import keras
import numpy as np
from keras import layers, ops


def alibi(heads, n):
    slopes = np.array([2.0 ** (-8.0 * (h + 1) / heads) for h in range(heads)])
    dist = np.arange(n)[None, :] - np.arange(n)[:, None]
    bias = slopes[:, None, None] * dist[None]
    return np.where(dist[None] > 0, -1e9, bias)


class Attention(layers.Layer):
    def __init__(self, dim, heads, **kw):
        super().__init__(**kw)
        self.dim, self.heads = dim, heads
        self.qkv = layers.Dense(3 * dim, name="qkv")
        self.proj = layers.Dense(dim, name="proj")

    def call(self, x):
        n, hd = x.shape[1], self.dim // self.heads
        qkv = ops.reshape(self.qkv(x), (-1, n, 3, self.heads, hd))
        q, k, v = [ops.transpose(qkv[:, :, i], (0, 2, 1, 3)) for i in range(3)]
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) / math.sqrt(hd)
        scores = scores + ops.convert_to_tensor(alibi(self.heads, n), dtype=scores.dtype)
        o = ops.matmul(ops.softmax(scores, axis=-1), v)
        return self.proj(ops.reshape(ops.transpose(o, (0, 2, 1, 3)), (-1, n, self.dim)))


class Decoder(keras.Model):
    def __init__(self, vocab=22, dim=16, heads=4, depth=2):
        super().__init__()
        self.dim = dim
        self.tokens = layers.Embedding(
            vocab, dim, embeddings_initializer=keras.initializers.RandomNormal(stddev=0.25)
        )
        self.norm1 = [layers.LayerNormalization(epsilon=1e-5) for _ in range(depth)]
        self.attn = [Attention(dim, heads) for _ in range(depth)]
        self.norm2 = [layers.LayerNormalization(epsilon=1e-5) for _ in range(depth)]
        self.up = [layers.Dense(2 * dim, activation="silu") for _ in range(depth)]
        self.down = [layers.Dense(dim) for _ in range(depth)]
        self.final = layers.LayerNormalization(epsilon=1e-5)

    def call(self, ids, training=None):
        h = self.tokens(ids) * math.sqrt(self.dim)
        for n1, a, n2, up, down in zip(self.norm1, self.attn, self.norm2, self.up, self.down):
            h = h + a(n1(h))
            h = h + down(up(n2(h)))
        return ops.matmul(self.final(h), ops.transpose(self.tokens.embeddings))


def build():
    m = Decoder()
    m(np.ones((2, 12), "int32"))
    return m


def smoothed_ce(y_true, y_pred, eps=0.1):
    y = ops.cast(y_true, "int32")
    logp = ops.log_softmax(y_pred, axis=-1)
    k = y_pred.shape[-1]
    onehot = ops.cast(ops.one_hot(y, k), logp.dtype)
    nll = -ops.sum((onehot * (1 - eps) + eps / k) * logp, axis=-1)
    w = ops.cast(ops.not_equal(y, 0), nll.dtype)
    return ops.sum(nll * w) / ops.sum(w)
