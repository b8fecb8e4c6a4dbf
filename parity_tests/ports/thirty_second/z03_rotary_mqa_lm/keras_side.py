import keras
import numpy as np
from keras import layers, ops


def rope_tables(length, dim, base=10000.0):
    inv = base ** (-np.arange(0, dim, 2) / dim)
    ang = np.arange(length)[:, None] * inv[None]
    ang = np.concatenate([ang, ang], -1)
    return np.cos(ang), np.sin(ang)


class RMSNorm(layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, x):
        return x * ops.rsqrt(ops.mean(ops.square(x), -1, keepdims=True) + 1e-6) * self.scale


class MultiQueryAttention(layers.Layer):
    def __init__(self, dim, heads, **kw):
        super().__init__(**kw)
        self.heads, self.hd = heads, dim // heads
        self.q_proj = layers.Dense(dim, use_bias=False)
        self.k_proj = layers.Dense(self.hd, use_bias=False)
        self.v_proj = layers.Dense(self.hd, use_bias=False)
        self.o_proj = layers.Dense(dim, use_bias=False)

    def rotate(self, x, cos, sin):
        a, b = ops.split(x, 2, axis=-1)
        return x * cos + ops.concatenate([-b, a], -1) * sin

    def call(self, x):
        t = x.shape[1]
        cos, sin = (ops.cast(m, x.dtype) for m in rope_tables(t, self.hd))
        q = ops.reshape(self.q_proj(x), (-1, t, self.heads, self.hd))
        q = self.rotate(ops.transpose(q, (0, 2, 1, 3)), cos, sin)
        k = self.rotate(self.k_proj(x), cos, sin)
        v = self.v_proj(x)
        s = ops.einsum("bhqd,bkd->bhqk", q, k) / self.hd**0.5
        s = s + ops.cast(np.triu(np.full((t, t), -1e9), 1), x.dtype)
        o = ops.einsum("bhqk,bkd->bqhd", ops.softmax(s, -1), v)
        return self.o_proj(ops.reshape(o, (-1, t, self.heads * self.hd)))


class CharLM(keras.Model):
    def __init__(self, vocab=40, dim=24, heads=3, depth=2):
        super().__init__()
        self.tok = layers.Embedding(vocab, dim)
        self.blocks = []
        for _ in range(depth):
            self.blocks.append(
                [
                    RMSNorm(),
                    MultiQueryAttention(dim, heads),
                    RMSNorm(),
                    layers.Dense(40, use_bias=False, activation="silu"),
                    layers.Dense(40, use_bias=False),
                    layers.Dense(dim, use_bias=False),
                ]
            )
        self.norm = RMSNorm()
        self.lm_head = layers.Dense(vocab, use_bias=False)

    def call(self, ids):
        x = self.tok(ids)
        for n1, attn, n2, gate, up, down in self.blocks:
            x = x + attn(n1(x))
            h = n2(x)
            x = x + down(gate(h) * up(h))
        return self.lm_head(self.norm(x))


def build():
    model = CharLM()
    model(np.zeros((2, 16), "int32"))
    return model


def loss(y_true, y_pred):
    return ops.mean(keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True))
