"""FT-Transformer-like fraud scorer, periodic embeddings for the numbers."""

import keras
import numpy as np
from keras import layers, ops

N_NUM, CARDS, K, D, HEADS = 6, (5, 7, 3), 8, 16, 4
OFFSETS = np.cumsum((0,) + CARDS[:-1]).astype("int32")
TWO_PI = np.float32(2 * np.pi)
ALPHA, GAMMA = 0.75, 2.0


class PeriodicTokens(layers.Layer):
    def build(self, shape):
        n = shape[-1]
        self.freq = self.add_weight(
            name="freq", shape=(n, K), initializer=keras.initializers.RandomNormal(stddev=0.3)
        )
        self.kernel = self.add_weight(
            name="kernel", shape=(n, 2 * K, D), initializer=keras.initializers.RandomNormal(stddev=0.25)
        )
        self.bias = self.add_weight(name="bias", shape=(n, D), initializer="zeros")

    def call(self, x):
        a = TWO_PI * x[..., None] * self.freq
        p = ops.concatenate([ops.sin(a), ops.cos(a)], axis=-1)
        return ops.relu(ops.einsum("bnk,nkd->bnd", p, self.kernel) + self.bias)


class CategoryTokens(layers.Layer):
    def __init__(self, **kw):
        super().__init__(**kw)
        self.table = layers.Embedding(
            sum(CARDS), D, embeddings_initializer=keras.initializers.RandomNormal(stddev=0.3), name="table"
        )

    def build(self, shape):
        self.table.build(shape)
        self.bias = self.add_weight(
            name="bias", shape=(len(CARDS), D), initializer=keras.initializers.RandomNormal(stddev=0.1)
        )

    def call(self, c):
        return self.table(ops.cast(c, "int32") + ops.convert_to_tensor(OFFSETS)) + self.bias


class PrependCLS(layers.Layer):
    def build(self, shape):
        self.cls = self.add_weight(
            name="cls", shape=(D,), initializer=keras.initializers.RandomNormal(stddev=0.3)
        )

    def call(self, t):
        c = ops.broadcast_to(self.cls, (ops.shape(t)[0], 1, D))
        return ops.concatenate([c, t], axis=1)


def block(x, i):
    h = layers.LayerNormalization(epsilon=1e-5, name=f"ln_att{i}")(x) if i else x
    a = layers.MultiHeadAttention(HEADS, D // HEADS, name=f"att{i}")(h, h)
    x = layers.Add()([x, a])
    h = layers.LayerNormalization(epsilon=1e-5, name=f"ln_ffn{i}")(x)
    u = layers.Dense(24, name=f"up{i}")(h)
    g = layers.Dense(24, activation="relu", name=f"gate{i}")(h)
    return layers.Add()([x, layers.Dense(D, name=f"down{i}")(layers.Multiply()([u, g]))])


def build():
    num = keras.Input((N_NUM,), name="num")
    cat = keras.Input((len(CARDS),), dtype="int32", name="cat")
    t = layers.Concatenate(axis=1)(
        [PeriodicTokens(name="periodic")(num), CategoryTokens(name="categories")(cat)]
    )
    x = PrependCLS(name="prepend")(t)
    for i in range(2):
        x = block(x, i)
    h = layers.LayerNormalization(epsilon=1e-5, name="ln_head")(x[:, 0])
    return keras.Model({"num": num, "cat": cat}, layers.Dense(1, name="head")(layers.ReLU()(h)), name="fraud")


def loss(y, z):
    y = ops.cast(y, z.dtype)
    ce = ops.maximum(z, 0.0) - z * y + ops.log1p(ops.exp(-ops.abs(z)))
    p = ops.sigmoid(z)
    miss = ops.stop_gradient(y * (1 - p) + (1 - y) * p)
    a = y * ALPHA + (1 - y) * (1 - ALPHA)
    return ops.mean(a * miss**GAMMA * ce, axis=-1)
