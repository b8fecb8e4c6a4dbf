import keras
import numpy as np
from keras import layers, ops


class Latents(layers.Layer):
    def __init__(self, count, dim, **kw):
        super().__init__(**kw)
        self.count, self.dim = count, dim

    def build(self, shape):
        self.latents = self.add_weight(
            shape=(self.count, self.dim),
            initializer=keras.initializers.RandomNormal(stddev=0.5),
            name="latents",
        )
        self.built = True

    def call(self, x):
        return ops.zeros_like(x[:, :1, :1]) + self.latents[None]

    def compute_output_shape(self, s):
        return (s[0], self.count, self.dim)


def rotate(x, theta=100.0):
    t, d = x.shape[1], x.shape[-1]
    freq = theta ** (-np.arange(0, d, 2) / d)
    ang = np.arange(t)[:, None] * freq[None]
    cos = ops.convert_to_tensor(np.cos(ang)[:, None], dtype=x.dtype)
    sin = ops.convert_to_tensor(np.sin(ang)[:, None], dtype=x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    out = ops.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    return ops.reshape(out, (-1, *x.shape[1:]))


def unit(x):
    return x * ops.rsqrt(ops.sum(x * x, axis=-1, keepdims=True) + 1e-6)


class CosineCross(layers.Layer):
    def __init__(self, dim, heads, **kw):
        super().__init__(**kw)
        self.dim, self.heads, self.dh = dim, heads, dim // heads
        self.q = layers.Dense(dim, name="q")
        self.k = layers.Dense(dim, use_bias=False, name="k")
        self.v = layers.Dense(dim, name="v")
        self.o = layers.Dense(dim, name="o")

    def build(self, shapes):
        self.q.build(shapes[0])
        self.k.build(shapes[1])
        self.v.build(shapes[1])
        self.o.build(shapes[0])
        self.log_scale = self.add_weight(
            shape=(self.heads,), initializer=keras.initializers.RandomUniform(0.5, 1.8), name="log_scale"
        )
        self.built = True

    def call(self, inputs):
        lat, seq, valid = inputs
        split = lambda a: ops.reshape(a, (-1, a.shape[1], self.heads, self.dh))
        q = rotate(unit(split(self.q(lat))))
        k = rotate(unit(split(self.k(seq))))
        v = split(self.v(seq))
        s = ops.einsum("bihd,bjhd->bhij", q, k) * ops.exp(self.log_scale)[None, :, None, None]
        s = s + (1.0 - valid[:, None, None, :]) * -1e9
        y = ops.einsum("bhij,bjhd->bihd", ops.softmax(s), v)
        return lat + self.o(ops.reshape(y, (-1, lat.shape[1], self.dim)))

    def compute_output_shape(self, s):
        return s[0]


def build():
    signal = keras.Input((16, 6), name="signal")
    valid = keras.Input((16,), name="valid")
    seq = layers.Dense(16, name="embed")(signal)
    seq = layers.LayerNormalization(epsilon=1e-5, name="seq_norm")(seq)
    lat = Latents(4, 16, name="latents")(seq)
    for i in range(2):
        lat = CosineCross(16, 2, name=f"cross{i}")([lat, seq, valid])
        r = layers.LayerNormalization(epsilon=1e-5, name=f"norm{i}")(lat)
        r = layers.Dense(32, activation="silu", name=f"mlp{i}_in")(r)
        r = layers.Dense(16, name=f"mlp{i}_out")(r)
        lat = layers.Add(name=f"add{i}")([lat, r])
    flat = layers.Flatten(name="flat")(lat)
    return keras.Model([signal, valid], layers.Dense(3, name="tags")(flat), name="perceiver")
