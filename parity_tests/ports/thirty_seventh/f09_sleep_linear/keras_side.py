"""Sleep stages of a night's epochs from band powers: a causal transformer with linear attention."""

import keras
import numpy as np
from keras import layers, ops

STAGE_WEIGHTS = np.array([1.0, 2.5, 0.5, 1.5, 1.2])


class LinearAttention(layers.Layer):
    """Causal, feature map elu + 1, as running sums over time."""

    def __init__(self, heads, dim, **kw):
        super().__init__(**kw)
        self.heads, self.dim = heads, dim

    def build(self, shape):
        self.q, self.k, self.v = (layers.Dense(self.heads * self.dim, use_bias=False, name=n) for n in "qkv")
        self.o = layers.Dense(shape[-1], name="o")
        for l in (self.q, self.k, self.v):
            l.build(shape)
        self.o.build((None, None, self.heads * self.dim))

    def split(self, x):
        return ops.reshape(x, (-1, x.shape[1], self.heads, self.dim))

    def call(self, x):
        q = ops.elu(self.split(self.q(x))) + 1.0
        k = ops.elu(self.split(self.k(x))) + 1.0
        v = self.split(self.v(x))
        kv = ops.cumsum(k[..., :, None] * v[..., None, :], axis=1)  # (b, t, h, d, d)
        norm = ops.cumsum(k, axis=1)
        num = ops.einsum("bthd,bthde->bthe", q, kv)
        den = ops.einsum("bthd,bthd->bth", q, norm)
        y = num / (den[..., None] + 1e-6)
        return self.o(ops.reshape(y, (-1, x.shape[1], self.heads * self.dim)))


class Positions(layers.Layer):
    def build(self, shape):
        self.table = self.add_weight(
            name="table", shape=shape[1:], initializer=keras.initializers.RandomNormal(stddev=0.02)
        )

    def call(self, x):
        return x + self.table


def build():
    inp = keras.Input((20, 8), name="x")
    h = Positions(name="positions")(layers.Dense(16, name="embed")(inp))
    for i in range(2):
        a = LinearAttention(2, 8, name=f"attention{i}")(
            layers.RMSNormalization(epsilon=1e-6, name=f"norm{i}_a")(h)
        )
        h = layers.Add()([h, a])
        n = layers.RMSNormalization(epsilon=1e-6, name=f"norm{i}_b")(h)
        g = layers.Dense(24, activation="silu", use_bias=False, name=f"gate{i}")(n)
        u = layers.Dense(24, use_bias=False, name=f"up{i}")(n)
        h = layers.Add()([h, layers.Dense(16, use_bias=False, name=f"down{i}")(layers.Multiply()([g, u]))])
    return keras.Model(inp, layers.Dense(5, name="stage")(h))


def weighted_ce(y, logits):
    y = ops.cast(y, "int32")
    ce = ops.sparse_categorical_crossentropy(y, logits, from_logits=True)
    w = ops.take(ops.convert_to_tensor(STAGE_WEIGHTS, dtype=logits.dtype), y)
    return ops.sum(w * ce) / ops.sum(w)
