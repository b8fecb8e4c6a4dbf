"""Linear recurrent units (diagonal complex state) for remaining-useful-life regression."""

import math

import keras
from keras import ops


class LRU(keras.layers.Layer):
    def __init__(self, d_state, **kw):
        super().__init__(**kw)
        self.n = d_state

    def build(self, shape):
        h = shape[-1]
        U = keras.initializers.RandomUniform
        self.nu_log = self.add_weight(name="nu_log", shape=(self.n,), initializer=U(-2.5, -0.7))
        self.theta_log = self.add_weight(name="theta_log", shape=(self.n,), initializer=U(-2.0, 0.5))
        self.gamma_log = self.add_weight(name="gamma_log", shape=(self.n,), initializer=U(-1.0, 0.0))
        g = keras.initializers.RandomNormal(stddev=1 / math.sqrt(2 * h))
        self.b_re = self.add_weight(name="b_re", shape=(h, self.n), initializer=g)
        self.b_im = self.add_weight(name="b_im", shape=(h, self.n), initializer=g)
        self.c_re = self.add_weight(name="c_re", shape=(self.n, h), initializer=g)
        self.c_im = self.add_weight(name="c_im", shape=(self.n, h), initializer=g)
        self.d = self.add_weight(name="d", shape=(h,), initializer="ones")

    def call(self, u):
        mod = ops.exp(-ops.exp(self.nu_log))
        ang = ops.exp(self.theta_log)
        lr, li = mod * ops.cos(ang), mod * ops.sin(ang)
        gain = ops.exp(self.gamma_log)
        in_re = ops.matmul(u, self.b_re) * gain
        in_im = ops.matmul(u, self.b_im) * gain
        re = ops.zeros_like(in_re[:, 0])
        im = ops.zeros_like(re)
        rs, js = [], []
        for t in range(u.shape[1]):
            re, im = lr * re - li * im + in_re[:, t], lr * im + li * re + in_im[:, t]
            rs.append(re)
            js.append(im)
        y = ops.matmul(ops.stack(rs, 1), self.c_re) - ops.matmul(ops.stack(js, 1), self.c_im)
        return y + self.d * u


class Block(keras.layers.Layer):
    def __init__(self, width, state, **kw):
        super().__init__(**kw)
        self.norm = keras.layers.LayerNormalization(epsilon=1e-5)
        self.lru = LRU(state)
        self.glu = keras.layers.Dense(2 * width)

    def call(self, x):
        z = ops.gelu(self.lru(self.norm(x)), approximate=False)
        a, b = ops.split(self.glu(z), 2, axis=-1)
        return x + a * ops.sigmoid(b)


class Degradation(keras.Model):
    def __init__(self):
        super().__init__()
        self.embed = keras.layers.Dense(8)
        self.stack = [Block(8, 6, name=f"block{i}") for i in range(2)]
        self.out = keras.layers.Dense(1)

    def call(self, x):
        x = self.embed(x)
        for blk in self.stack:
            x = blk(x)
        return self.out(ops.mean(x, axis=1))


def build():
    m = Degradation()
    m(ops.zeros((1, 20, 4)))
    return m
