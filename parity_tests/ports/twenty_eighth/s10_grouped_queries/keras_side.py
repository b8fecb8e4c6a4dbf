import keras
import numpy as np
from keras import layers, ops


class GroupedAttention(layers.Layer):
    def __init__(self, dim, heads, kv_heads, **kw):
        super().__init__(**kw)
        self.dim, self.heads, self.kv_heads = dim, heads, kv_heads
        self.dh = dim // heads
        self.wq = layers.Dense(heads * self.dh, use_bias=False, name="wq")
        self.wk = layers.Dense(kv_heads * self.dh, use_bias=False, name="wk")
        self.wv = layers.Dense(kv_heads * self.dh, use_bias=False, name="wv")
        self.wo = layers.Dense(dim, use_bias=False, name="wo")

    def build(self, shape):
        for l in (self.wq, self.wk, self.wv, self.wo):
            l.build(shape)
        self.built = True

    def call(self, x):
        t = x.shape[1]
        q = ops.reshape(self.wq(x), (-1, t, self.heads, self.dh))
        k = ops.reshape(self.wk(x), (-1, t, self.kv_heads, self.dh))
        v = ops.reshape(self.wv(x), (-1, t, self.kv_heads, self.dh))
        rep = self.heads // self.kv_heads
        k = ops.repeat(k, rep, axis=2)
        v = ops.repeat(v, rep, axis=2)
        dist = np.arange(t)[None, :] - np.arange(t)[:, None]
        slopes = 2.0 ** (-8.0 * np.arange(1, self.heads + 1) / self.heads)
        bias = np.where(dist > 0, -1e9, slopes[:, None, None] * dist)
        s = ops.einsum("bihd,bjhd->bhij", q, k) * self.dh**-0.5
        s = s + ops.convert_to_tensor(bias, dtype=s.dtype)
        y = ops.einsum("bhij,bjhd->bihd", ops.softmax(s, axis=-1), v)
        return self.wo(ops.reshape(y, (-1, t, self.dim)))


class RMSNorm(layers.Layer):
    def build(self, shape):
        self.g = self.add_weight(shape=(shape[-1],), initializer="ones", name="g")
        self.built = True

    def call(self, x):
        return self.g * x * ops.rsqrt(ops.mean(ops.square(x), axis=-1, keepdims=True) + 1e-6)


class SwiGLU(layers.Layer):
    def __init__(self, dim, hidden, **kw):
        super().__init__(**kw)
        self.gate = layers.Dense(hidden, use_bias=False, name="gate")
        self.up = layers.Dense(hidden, use_bias=False, name="up")
        self.down = layers.Dense(dim, use_bias=False, name="down")
        self.hidden = hidden

    def build(self, shape):
        self.gate.build(shape)
        self.up.build(shape)
        self.down.build((*shape[:-1], self.hidden))
        self.built = True

    def call(self, x):
        return self.down(ops.silu(self.gate(x)) * self.up(x))


def build(vocab=32, dim=24, depth=2, length=12):
    ids = keras.Input((length,), dtype="int32", name="x")
    h = layers.Embedding(
        vocab, dim, embeddings_initializer=keras.initializers.RandomNormal(stddev=1.0), name="wte"
    )(ids)
    for i in range(depth):
        a = GroupedAttention(dim, 4, 2, name=f"attn_{i}")(RMSNorm(name=f"norm_a_{i}")(h))
        h = layers.Add(name=f"add_a_{i}")([h, a])
        f = SwiGLU(dim, 40, name=f"ffn_{i}")(RMSNorm(name=f"norm_f_{i}")(h))
        h = layers.Add(name=f"add_f_{i}")([h, f])
    h = RMSNorm(name="norm_out")(h)
    return keras.Model(ids, layers.Dense(vocab, use_bias=False, name="lm_head")(h), name="gqa_lm")
