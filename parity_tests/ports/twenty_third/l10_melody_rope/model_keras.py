"""Next-note model: small decoder with rotary positions, RMS norm and GeGLU.

Notes are numbers 1..17, 0 is padding at the end. The output layer shares the
note embedding.
"""

import keras
import numpy as np
from keras import layers, ops

VOCAB, LENGTH, DIM, HEADS, HIDDEN, DEPTH = 18, 14, 24, 4, 30, 2
SMOOTHING = 0.1


def rotary_tables(length, dim, base=100.0):
    freq = base ** (-np.arange(0, dim, 2) / dim)
    angle = np.arange(length)[:, None] * np.concatenate([freq, freq])[None, :]
    return np.cos(angle), np.sin(angle)


class RMSNorm(layers.Layer):
    def build(self, input_shape):
        self.scale = self.add_weight(name="scale", shape=(input_shape[-1],), initializer="ones")

    def call(self, x):
        ms = ops.mean(ops.square(x), axis=-1, keepdims=True)
        return x * ops.rsqrt(ms + 1e-5) * self.scale


class Block(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.norm1, self.norm2 = RMSNorm(name="norm1"), RMSNorm(name="norm2")
        self.qkv = layers.Dense(3 * DIM, use_bias=False, name="qkv")
        self.out = layers.Dense(DIM, use_bias=False, name="out")
        self.up = layers.Dense(2 * HIDDEN, kernel_initializer="he_normal", name="up")
        self.down = layers.Dense(DIM, name="down")

    def build(self, input_shape):
        for layer in (self.norm1, self.norm2, self.qkv, self.out, self.up):
            layer.build(input_shape)
        self.down.build(tuple(input_shape[:-1]) + (HIDDEN,))

    def rotate(self, x):
        cos, sin = (ops.cast(t, x.dtype) for t in rotary_tables(LENGTH, DIM // HEADS))
        x1, x2 = ops.split(x, 2, axis=-1)
        return x * cos + ops.concatenate([-x2, x1], axis=-1) * sin

    def call(self, x):
        h = ops.reshape(self.qkv(self.norm1(x)), (-1, LENGTH, 3, HEADS, DIM // HEADS))
        q, k, v = (ops.transpose(h[:, :, i], (0, 2, 1, 3)) for i in range(3))
        q, k = self.rotate(q), self.rotate(k)
        score = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) / (DIM // HEADS) ** 0.5
        causal = np.tril(np.ones((LENGTH, LENGTH), dtype=bool))
        weight = ops.softmax(ops.where(causal, score, -1e9), axis=-1)
        mixed = ops.transpose(ops.matmul(weight, v), (0, 2, 1, 3))
        x = x + self.out(ops.reshape(mixed, (-1, LENGTH, DIM)))
        gate, value = ops.split(self.up(self.norm2(x)), 2, axis=-1)
        return x + self.down(ops.gelu(gate) * value)


class MelodyModel(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embed = layers.Embedding(
            VOCAB, DIM, embeddings_initializer=keras.initializers.RandomNormal(stddev=0.5), name="embed"
        )
        self.blocks = [Block(name=f"block{i}") for i in range(DEPTH)]
        self.norm = RMSNorm(name="norm")

    def call(self, notes):
        x = self.embed(notes)
        for block in self.blocks:
            x = block(x)
        return ops.matmul(self.norm(x), ops.transpose(self.embed.embeddings))


def build():
    model = MelodyModel(name="melody")
    model(np.zeros((1, LENGTH), dtype="int32"))
    return model


def loss(y_true, y_pred):
    """Smoothed cross entropy, averaged over the notes that are not padding."""
    note = ops.cast(y_true, "int32")
    hot = ops.one_hot(note, VOCAB, dtype=y_pred.dtype)
    target = (1.0 - SMOOTHING) * hot + SMOOTHING / VOCAB
    ce = -ops.sum(target * ops.log_softmax(y_pred, axis=-1), axis=-1)
    real = ops.cast(note > 0, ce.dtype)
    return ops.sum(ce * real) / ops.sum(real)
