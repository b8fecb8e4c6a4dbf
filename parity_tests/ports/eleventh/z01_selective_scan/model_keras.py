"""Selective state space model (Mamba's scan) which recalls the digit after the last marker of a sequence."""

import keras
import numpy as np
from keras import layers, ops

VOCABULARY, WIDTH, INNER, STATE, RANK = 13, 16, 24, 4, 2


class RMSNorm(layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, x):
        return x * ops.rsqrt(ops.mean(ops.square(x), axis=-1, keepdims=True) + 1e-6) * self.scale


def log_range(shape, dtype=None):
    return ops.convert_to_tensor(np.log(np.tile(np.arange(1, shape[1] + 1), (shape[0], 1))), dtype=dtype)


class SelectiveSSM(layers.Layer):
    """All positions at once: what step u wrote is read at step t, decayed by exp(sum of dt * A between them)."""

    def build(self, shape):
        self.project = layers.Dense(RANK + 2 * STATE, use_bias=False, name="project")
        self.project.build(shape)
        self.step = layers.Dense(shape[-1], activation="softplus", name="step")
        self.step.build((*shape[:-1], RANK))
        self.a_log = self.add_weight(shape=(shape[-1], STATE), initializer=log_range, name="a_log")
        self.skip = self.add_weight(shape=(shape[-1],), initializer="ones", name="skip")

    def call(self, x):
        steps = x.shape[1]
        dt, b, c = ops.split(self.project(x), [RANK, RANK + STATE], axis=-1)
        dt = self.step(dt)
        decay = ops.cumsum(-dt[..., None] * ops.exp(self.a_log), axis=1)
        gap = decay[:, :, None] - decay[:, None, :]
        past = np.tril(np.ones((steps, steps), "bool"))[None, :, :, None, None]
        kernel = ops.exp(ops.where(past, gap, -1e4))
        drive = (dt * x)[..., None] * b[:, :, None, :]
        state = ops.sum(kernel * drive[:, None], axis=2)
        return ops.einsum("ntds,nts->ntd", state, c) + self.skip * x


class MambaBlock(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.norm = RMSNorm(name="norm")
        self.value = layers.Dense(INNER, use_bias=False, name="value")
        self.gate = layers.Dense(INNER, use_bias=False, activation="silu", name="gate")
        self.pad = layers.ZeroPadding1D((3, 0))
        self.conv = layers.DepthwiseConv1D(4, activation="silu", name="conv")
        self.ssm = SelectiveSSM(name="ssm")
        self.out = layers.Dense(WIDTH, use_bias=False, name="out")
        self.dropout = layers.Dropout(0.1)

    def call(self, x, training=None):
        h = self.norm(x)
        value, gate = self.value(h), self.gate(h)
        value = self.ssm(self.conv(self.pad(value)))
        return x + self.dropout(self.out(value * gate), training=training)


def build():
    tokens = keras.Input((20,), dtype="int32", name="tokens")
    x = layers.Embedding(VOCABULARY, WIDTH, name="embedding")(tokens)
    for i in range(2):
        x = MambaBlock(name=f"block{i}")(x)
    x = RMSNorm(name="final_norm")(x)
    return keras.Model(tokens, layers.Dense(10, name="head")(x[:, -1]))
