"""Discharge of a river from the last 24 hours of forcing: two selective state-space blocks (Mamba-like)."""

import keras
import numpy as np
from keras import layers, ops


def scan(a, b):
    """h[t] = a[t] h[t-1] + b[t], all times at once, in log2(time) passes of doubling."""
    step = 1
    while step < a.shape[1]:
        pad = [[0, 0], [step, 0], [0, 0], [0, 0]]
        b = b + a * ops.pad(b[:, :-step], pad)
        a = a * ops.pad(a[:, :-step], pad, constant_values=1)
        step *= 2
    return b


class SelectiveSSM(layers.Layer):
    def __init__(self, state=4, **kw):
        super().__init__(**kw)
        self.state = state

    def build(self, shape):
        d = shape[-1]
        self.delta = layers.Dense(
            d, activation="softplus", name="delta", bias_initializer=keras.initializers.Constant(-1.0)
        )
        self.b_proj = layers.Dense(self.state, use_bias=False, name="b_proj")
        self.c_proj = layers.Dense(self.state, use_bias=False, name="c_proj")
        for l in (self.delta, self.b_proj, self.c_proj):
            l.build(shape)
        a0 = np.log(np.tile(np.arange(1, self.state + 1), (d, 1)))
        self.a_log = self.add_weight(
            name="a_log",
            shape=(d, self.state),
            initializer=lambda s, dtype=None: ops.convert_to_tensor(a0, dtype=dtype),
        )
        self.skip = self.add_weight(name="skip", shape=(d,), initializer="ones")

    def call(self, u):
        dt, b, c = self.delta(u), self.b_proj(u), self.c_proj(u)
        decay = ops.exp(-dt[..., None] * ops.exp(self.a_log))  # (batch, time, d, state)
        drive = (dt * u)[..., None] * b[:, :, None, :]
        h = scan(decay, drive)
        return ops.sum(h * c[:, :, None, :], axis=-1) + u * self.skip


def block(x, i, d):
    h = layers.RMSNormalization(name=f"norm{i}", epsilon=1e-6)(x)
    u = layers.Dense(d, use_bias=False, activation="silu", name=f"value{i}")(h)
    z = layers.Dense(d, use_bias=False, activation="silu", name=f"gate{i}")(h)
    y = SelectiveSSM(name=f"ssm{i}")(u)
    y = layers.Multiply()([y, z])
    return layers.Add()([x, layers.Dense(x.shape[-1], use_bias=False, name=f"out{i}")(y)])


def build():
    inp = keras.Input((24, 4), name="x")
    h = layers.Dense(8, name="embed")(inp)
    for i in range(2):
        h = block(h, i, 12)
    h = layers.RMSNormalization(name="norm_f", epsilon=1e-6)(h)
    h = layers.Lambda(lambda t: t[:, -1], name="last")(h)
    return keras.Model(inp, layers.Dense(1, name="head")(h))
