import keras
import numpy as np
from keras import layers, ops


class FeedForward(layers.Layer):
    def __init__(self, dim, **kw):
        super().__init__(**kw)
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.a = layers.Dense(2 * dim, activation="gelu", name="a")
        self.b = layers.Dense(dim, name="b")

    def call(self, x):
        return self.b(self.a(self.norm(x)))


class Cross(layers.Layer):
    def __init__(self, dim, heads, **kw):
        super().__init__(**kw)
        self.norm_q = layers.LayerNormalization(epsilon=1e-5, name="norm_q")
        self.norm_kv = layers.LayerNormalization(epsilon=1e-5, name="norm_kv")
        self.attn = layers.MultiHeadAttention(heads, dim // heads, name="attn")
        self.ff = FeedForward(dim, name="ff")

    def call(self, lat, ctx, mask):
        q, kv = self.norm_q(lat), self.norm_kv(ctx)
        lat = lat + self.attn(q, kv, attention_mask=mask)
        return lat + self.ff(lat)


class SelfBlock(layers.Layer):
    def __init__(self, dim, heads, **kw):
        super().__init__(**kw)
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.attn = layers.MultiHeadAttention(heads, dim // heads, name="attn")
        self.ff = FeedForward(dim, name="ff")

    def call(self, lat):
        h = self.norm(lat)
        lat = lat + self.attn(h, h)
        return lat + self.ff(lat)


class Latents(layers.Layer):
    def __init__(self, n, dim, **kw):
        super().__init__(**kw)
        self.n, self.dim = n, dim

    def build(self, shape):
        self.latents = self.add_weight(shape=(self.n, self.dim), initializer="random_normal", name="latents")
        self.latents.assign(np.random.default_rng(0).normal(size=(self.n, self.dim)) * 0.5)

    def call(self, x):
        return ops.tile(self.latents[None], (ops.shape(x)[0], 1, 1))


def build(n=20, f=6, dim=16):
    mask = keras.Input((n,), name="mask")
    tokens = keras.Input((n, f), name="tokens")
    ctx = layers.Dense(dim, name="embed")(tokens)
    att_mask = layers.Reshape((1, n))(mask) > 0.5
    lat = Latents(5, dim, name="latents")(tokens)
    cross = Cross(dim, 2, name="cross")
    process = SelfBlock(dim, 4, name="process")
    for _ in range(2):
        lat = cross(lat, ctx, att_mask)
        lat = process(lat)
    lat = layers.LayerNormalization(epsilon=1e-5, name="final_norm")(lat)
    out = layers.Dense(2, name="out")(ops.mean(lat, axis=1))
    return keras.Model([mask, tokens], out, name="perceiver")
