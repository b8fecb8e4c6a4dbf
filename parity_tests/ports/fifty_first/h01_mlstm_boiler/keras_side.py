"""Boiler drum signals: two matrix-memory (mLSTM) blocks in their parallel form."""

import keras
import numpy as np
from keras import layers, ops


class HeadNorm(layers.Layer):
    """Layer normalisation inside of every head, one scale a channel."""

    def __init__(self, heads, epsilon=1e-3, **kwargs):
        super().__init__(**kwargs)
        self.heads = heads
        self.epsilon = epsilon

    def build(self, shape):
        self.scale = self.add_weight(name="scale", shape=(shape[-1],), initializer="ones")

    def call(self, x):
        b, t, c = ops.shape(x)[0], x.shape[1], x.shape[2]
        y = ops.reshape(x, (b, t, self.heads, c // self.heads))
        mean = ops.mean(y, axis=-1, keepdims=True)
        var = ops.mean(ops.square(y - mean), axis=-1, keepdims=True)
        y = (y - mean) * ops.rsqrt(var + self.epsilon)
        return ops.reshape(y, (b, t, c)) * self.scale


class MatrixMemory(layers.Layer):
    def __init__(self, heads, **kwargs):
        super().__init__(**kwargs)
        self.heads = heads

    def build(self, q_shape, k_shape, v_shape):
        self.width = q_shape[-1]
        self.input_gate = layers.Dense(
            self.heads, kernel_initializer=keras.initializers.RandomNormal(0.0, 0.02), name="input_gate"
        )
        self.forget_gate = layers.Dense(
            self.heads,
            kernel_initializer=keras.initializers.RandomNormal(0.0, 0.02),
            bias_initializer=lambda shape, dtype=None: ops.cast(
                ops.linspace(1.0, 4.0, shape[0]), dtype or "float32"
            ),
            name="forget_gate",
        )
        joint = (q_shape[0], q_shape[1], 3 * self.width)
        self.input_gate.build(joint)
        self.forget_gate.build(joint)

    def split(self, x):
        b, t = ops.shape(x)[0], x.shape[1]
        x = ops.reshape(x, (b, t, self.heads, self.width // self.heads))
        return ops.transpose(x, (0, 2, 1, 3))

    def call(self, q, k, v):
        steps = q.shape[1]
        joint = ops.concatenate([q, k, v], axis=-1)
        log_i = ops.transpose(self.input_gate(joint), (0, 2, 1))
        log_f = ops.transpose(ops.log_sigmoid(self.forget_gate(joint)), (0, 2, 1))
        q, k, v = self.split(q), self.split(k), self.split(v)
        summed = ops.cumsum(log_f, axis=-1)
        log_d = summed[:, :, :, None] - summed[:, :, None, :] + log_i[:, :, None, :]
        past = np.tril(np.ones((steps, steps), dtype=bool))
        log_d = ops.where(past, log_d, -1e30)
        top = ops.max(log_d, axis=-1, keepdims=True)
        decay = ops.exp(log_d - top)
        scores = ops.einsum("bhtd,bhsd->bhts", q, k) / float(np.sqrt(self.width // self.heads)) * decay
        norm = ops.maximum(ops.abs(ops.sum(scores, axis=-1, keepdims=True)), ops.exp(-top))
        y = ops.matmul(scores / norm, v)
        y = ops.transpose(y, (0, 2, 1, 3))
        return ops.reshape(y, (ops.shape(y)[0], steps, self.width))


class Block(layers.Layer):
    def __init__(self, width, inner, heads, taps=4, **kwargs):
        super().__init__(**kwargs)
        self.taps = taps
        self.norm = layers.LayerNormalization(epsilon=1e-5)
        self.up = layers.Dense(inner)
        self.gate = layers.Dense(inner)
        self.conv = layers.DepthwiseConv1D(taps, padding="valid")
        self.query = layers.Dense(inner, use_bias=False)
        self.key = layers.Dense(inner, use_bias=False)
        self.value = layers.Dense(inner, use_bias=False)
        self.memory = MatrixMemory(heads)
        self.head_norm = HeadNorm(heads)
        self.down = layers.Dense(width)
        self.inner = inner

    def build(self, shape):
        self.skip = self.add_weight(name="skip", shape=(self.inner,), initializer="ones")
        wide = (shape[0], shape[1], self.inner)
        self.norm.build(shape)
        self.up.build(shape)
        self.gate.build(shape)
        self.conv.build((shape[0], shape[1] + self.taps - 1, self.inner))
        for layer in (self.query, self.key, self.value, self.head_norm, self.down):
            layer.build(wide)
        self.memory.build(wide, wide, wide)

    def call(self, x):
        y = self.norm(x)
        u, z = self.up(y), self.gate(y)
        c = ops.silu(self.conv(ops.pad(u, [[0, 0], [self.taps - 1, 0], [0, 0]])))
        h = self.memory(self.query(c), self.key(c), self.value(u))
        h = self.head_norm(h) + self.skip * c
        return x + self.down(h * ops.silu(z))


class DrumModel(keras.Model):
    def __init__(self, width=16, inner=32, heads=4, depth=2, outputs=3, **kwargs):
        super().__init__(**kwargs)
        self.embed = layers.Dense(width)
        self.blocks = [Block(width, inner, heads, name=f"block_{i}") for i in range(depth)]
        self.final_norm = layers.LayerNormalization(epsilon=1e-5)
        self.readout = layers.Dense(outputs)

    def call(self, signals):
        x = self.embed(signals)
        for block in self.blocks:
            x = block(x)
        return self.readout(self.final_norm(x[:, -1]))


def build():
    return DrumModel()
