"""A small decoder in the manner of Llama: RMS norm, rotary positions, grouped queries, SwiGLU."""

import keras
import numpy as np
from keras import layers, ops


class RMSNorm(layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, x):
        return self.scale * x * ops.rsqrt(ops.mean(ops.square(x), axis=-1, keepdims=True) + 1e-6)


def rotate(x, base=10000.0):
    # x: batch, time, heads, features
    length, d = x.shape[1], x.shape[-1]
    angle = np.arange(length)[:, None] * base ** (-np.arange(0, d, 2) / d)[None]
    cos, sin = (
        ops.convert_to_tensor(np.tile(f(angle), (1, 2))[:, None], dtype=x.dtype) for f in (np.cos, np.sin)
    )
    half = ops.concatenate([-x[..., d // 2 :], x[..., : d // 2]], axis=-1)
    return x * cos + half * sin


class GroupedQueryAttention(layers.Layer):
    def __init__(self, dim, heads, kv_heads, **kwargs):
        super().__init__(**kwargs)
        self.h, self.kv, self.d = heads, kv_heads, dim // heads
        self.q_proj = layers.Dense(dim, use_bias=False, name="q_proj")
        self.k_proj = layers.Dense(kv_heads * self.d, use_bias=False, name="k_proj")
        self.v_proj = layers.Dense(kv_heads * self.d, use_bias=False, name="v_proj")
        self.o_proj = layers.Dense(dim, use_bias=False, name="o_proj")

    def call(self, x):
        t = x.shape[1]
        q = rotate(ops.reshape(self.q_proj(x), (-1, t, self.h, self.d)))
        k = rotate(ops.reshape(self.k_proj(x), (-1, t, self.kv, self.d)))
        v = ops.reshape(self.v_proj(x), (-1, t, self.kv, self.d))
        k, v = (ops.repeat(z, self.h // self.kv, axis=2) for z in (k, v))
        s = ops.einsum("bqhd,bkhd->bhqk", q, k) / self.d**0.5
        s = ops.where(np.tril(np.ones((t, t), bool)), s, -1e9)
        y = ops.einsum("bhqk,bkhd->bqhd", ops.softmax(s, axis=-1), v)
        return self.o_proj(ops.reshape(y, (-1, t, self.h * self.d)))


class DecoderLayer(layers.Layer):
    def __init__(self, dim, heads, kv_heads, hidden, **kwargs):
        super().__init__(**kwargs)
        self.input_norm = RMSNorm(name="input_norm")
        self.attention = GroupedQueryAttention(dim, heads, kv_heads, name="attention")
        self.post_norm = RMSNorm(name="post_norm")
        self.gate_proj = layers.Dense(hidden, activation="silu", use_bias=False, name="gate_proj")
        self.up_proj = layers.Dense(hidden, use_bias=False, name="up_proj")
        self.down_proj = layers.Dense(dim, use_bias=False, name="down_proj")

    def call(self, x):
        x = x + self.attention(self.input_norm(x))
        y = self.post_norm(x)
        return x + self.down_proj(self.gate_proj(y) * self.up_proj(y))


class Llama(keras.Model):
    def __init__(self, vocab=60, dim=32, depth=2, heads=4, kv_heads=2, hidden=88):
        super().__init__(name="llama")
        self.embed_tokens = layers.Embedding(vocab, dim, name="embed_tokens")
        self.decoder = [DecoderLayer(dim, heads, kv_heads, hidden, name=f"layer{i}") for i in range(depth)]
        self.norm = RMSNorm(name="norm")
        self.lm_head = layers.Dense(vocab, use_bias=False, name="lm_head")

    def call(self, x):
        x = self.embed_tokens(x)
        for layer in self.decoder:
            x = layer(x)
        return self.lm_head(self.norm(x))
