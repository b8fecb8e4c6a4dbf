"""Review classifier: bidirectional transformer with ALiBi, RMSNorm and SwiGLU.

Token 0 pads on the right. AdamW; norm gains and biases are not decayed.
"""

import math

import keras
import numpy as np
from keras import layers, ops

VOCAB, LENGTH, DIM, HEADS, HIDDEN, CLASSES = 60, 16, 24, 6, 32, 4


def alibi_slopes(n):
    def pow2(m):
        start = 2.0 ** (-8.0 / m)
        return [start ** (i + 1) for i in range(m)]

    m = 2 ** int(math.floor(math.log2(n)))
    return pow2(m) + pow2(2 * m)[0::2][: n - m]


class ScaledEmbedding(layers.Layer):
    """Embedding whose table is scaled by sqrt(dim) before the look-up."""

    def build(self, shape):
        self.table = self.add_weight(
            name="table", shape=(VOCAB, DIM), initializer=keras.initializers.RandomNormal(stddev=DIM**-0.5)
        )

    def call(self, ids):
        return ops.take(self.table * DIM**0.5, ids, axis=0)


class RMSNorm(layers.Layer):
    def build(self, shape):
        self.gain = self.add_weight(name="gain", shape=(shape[-1],), initializer="ones")

    def call(self, x):
        return x * ops.rsqrt(ops.mean(x * x, axis=-1, keepdims=True) + 1e-6) * self.gain


class AlibiAttention(layers.Layer):
    def __init__(self, **kw):
        super().__init__(**kw)
        self.q = layers.Dense(DIM, use_bias=False, name="q")
        self.k = layers.Dense(DIM, use_bias=False, name="k")
        self.v = layers.Dense(DIM, use_bias=False, name="v")
        self.o = layers.Dense(DIM, name="o")
        i = np.arange(LENGTH)
        dist = np.abs(i[:, None] - i[None, :])
        self.bias = -np.array(alibi_slopes(HEADS))[:, None, None] * dist

    def build(self, x_shape, real_shape):
        for d in (self.q, self.k, self.v, self.o):
            d.build(x_shape)

    def call(self, x, real):
        def heads(z):
            return ops.transpose(ops.reshape(z, (-1, LENGTH, HEADS, DIM // HEADS)), (0, 2, 1, 3))

        q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))
        a = ops.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(DIM // HEADS)
        a = a + ops.convert_to_tensor(self.bias, dtype=a.dtype)
        a = ops.where(real[:, None, None, :], a, -1e9)
        y = ops.einsum("bhij,bhjd->bihd", ops.softmax(a), v)
        return self.o(ops.reshape(y, (-1, LENGTH, DIM)))


class MaskedMean(layers.Layer):
    def call(self, x, real):
        w = ops.cast(real, x.dtype)[..., None]
        return ops.sum(x * w, axis=1) / ops.sum(w, axis=1)


def build():
    ids = keras.Input((LENGTH,), dtype="int32", name="x")
    real = ops.not_equal(ids, 0)
    x = ScaledEmbedding(name="tokens")(ids)
    x = layers.Dropout(0.1, name="drop")(x)
    for i in range(2):
        x = x + AlibiAttention(name=f"attn{i}")(RMSNorm(name=f"norm{i}a")(x), real)
        h = RMSNorm(name=f"norm{i}b")(x)
        g = layers.Dense(HIDDEN, use_bias=False, activation="silu", name=f"gate{i}")(h)
        u = layers.Dense(HIDDEN, use_bias=False, name=f"up{i}")(h)
        x = x + layers.Dense(DIM, use_bias=False, name=f"down{i}")(g * u)
    x = RMSNorm(name="norm_out")(x)
    x = MaskedMean(name="mean")(x, real)
    return keras.Model(ids, layers.Dense(CLASSES, name="classes")(x), name="alibi_reviews")


def optimizer():
    opt = keras.optimizers.AdamW(learning_rate=0.003, weight_decay=0.05, beta_2=0.98, epsilon=1e-10)
    opt.exclude_from_weight_decay(var_names=["gain", "bias"])
    return opt
