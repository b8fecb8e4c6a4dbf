# Hyena operator for gearbox vibration, (N, C, L) inside the mixer.
import math

import keras
import numpy as np
from keras import layers, ops


class Module(layers.Layer):
    def call(self, *args):
        return self.forward(*args)

    def register_parameter(self, name, value):
        value = np.asarray(value, dtype="float32")
        p = self.add_weight(
            name=name, shape=value.shape, initializer=lambda s, dtype=None: ops.cast(value, dtype)
        )
        setattr(self, name, p)


def Linear(in_features, out_features, bias=True):
    m = layers.Dense(out_features, use_bias=bias)
    m.build((None, in_features))
    return m


def LayerNorm(dim, eps=1e-5):
    m = layers.LayerNormalization(epsilon=eps)
    m.build((None, dim))
    return m


def fftconv(u, k, D):
    # u: (N, C, L), k: (C, L), D: (C,)
    seqlen = u.shape[-1]
    fft_size = 2 * seqlen
    ur, ui = ops.rfft(u, fft_length=fft_size)
    kr, ki = ops.rfft(k, fft_length=fft_size)
    y = ops.irfft((ur * kr - ui * ki, ur * ki + ui * kr), fft_length=fft_size)[..., :seqlen]
    return y + u * ops.expand_dims(D, -1)


class HyenaFilter(Module):
    def __init__(self, d_model, order, seqlen, bands=3, width=16, w=4.0):
        super().__init__()
        self.d_model, self.order, self.seqlen, self.w = d_model, order, seqlen, w
        t = np.linspace(0, 1, seqlen, dtype="float32")[:, None]
        ang = 2 * math.pi * np.arange(seqlen, dtype="float32")[:, None] / seqlen
        f = np.linspace(1e-4, bands - 1, bands, dtype="float32")[None]
        self.z = np.concatenate([t, np.cos(f * ang), -np.sin(f * ang)], axis=1).astype("float32")
        deltas = np.linspace(math.log(1e-2) / 1.5, math.log(1e-2) / 0.3, d_model, dtype="float32")
        self.decay = np.exp(-t * np.abs(deltas)[None]).astype("float32")
        self.fc1 = Linear(2 * bands + 1, width)
        self.fc2 = Linear(width, width)
        self.fc3 = Linear(width, d_model * (order - 1), bias=False)
        self.register_parameter("freq", np.full((1, width), w))

    def forward(self):
        h = ops.sin(self.freq * self.fc1(ops.convert_to_tensor(self.z)))
        h = ops.sin(self.freq * self.fc2(h))
        h = self.fc3(h)
        h = ops.reshape(h, (self.seqlen, self.order - 1, self.d_model))
        h = h * ops.cast(self.decay, h.dtype)[:, None, :]
        return ops.transpose(h, (1, 2, 0))


class HyenaOperator(Module):
    def __init__(self, d_model, seqlen, order=3):
        super().__init__()
        self.d_model, self.order, self.seqlen = d_model, order, seqlen
        inner = d_model * (order + 1)
        rng = np.random.default_rng(order)
        self.in_proj = Linear(d_model, inner)
        self.out_proj = Linear(d_model, d_model)
        self.register_parameter("short_weight", rng.uniform(-0.57, 0.57, (inner, 3)))
        self.register_parameter("short_bias", np.zeros(inner))
        self.register_parameter("D", rng.normal(size=(order - 1, d_model)))
        self.filter_fn = HyenaFilter(d_model, order, seqlen)

    def forward(self, u):
        l = self.seqlen
        u = ops.transpose(self.in_proj(u), (0, 2, 1))
        u = ops.pad(u, ((0, 0), (0, 0), (2, 0)))
        u = sum(self.short_weight[:, j, None] * u[:, :, j : j + l] for j in range(3))
        u = u + self.short_bias[:, None]

        *x, v = ops.split(u, self.order + 1, axis=1)
        k = self.filter_fn()
        for o, x_i in enumerate(reversed(x[1:])):
            v = fftconv(v * x_i, k[o], self.D[o])
        y = v * x[0]
        return self.out_proj(ops.transpose(y, (0, 2, 1)))


class Block(Module):
    def __init__(self, dim, seqlen):
        super().__init__()
        self.norm1 = LayerNorm(dim)
        self.mixer = HyenaOperator(dim, seqlen)
        self.norm2 = LayerNorm(dim)
        self.w1 = Linear(dim, 2 * dim)
        self.w2 = Linear(2 * dim, dim)

    def forward(self, x):
        x = x + self.mixer(self.norm1(x))
        return x + self.w2(ops.gelu(self.w1(self.norm2(x)), approximate=False))


class Hyena(keras.Model):
    def __init__(self, in_channels=3, dim=12, depth=2, seqlen=48, out_features=2):
        super().__init__()
        self.embed = Linear(in_channels, dim)
        self.blocks = [Block(dim, seqlen) for _ in range(depth)]
        self.norm = LayerNorm(dim)
        self.head = Linear(dim, out_features)

    def call(self, x):
        return self.forward(x)

    def forward(self, x):
        x = self.embed(x)
        for blk in self.blocks:
            x = blk(x)
        x = self.norm(x)
        return self.head(ops.mean(x, axis=1))


def build():
    model = Hyena()
    model(np.zeros((1, 48, 3), dtype="float32"))
    return model
