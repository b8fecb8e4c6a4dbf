"""Fault code of a repair note: Star-Transformer (Guo et al. 2019). Words form a ring and share a relay node."""

import keras
import numpy as np
from keras import ops

WORDS, LONGEST = 50, 14
FAR = -1e9


def sinusoids(length, dim):
    angle = np.arange(length)[:, None] / 100.0 ** (np.arange(0, dim, 2)[None, :] / dim)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(length, dim).astype(np.float32)


class RoundNorm(keras.layers.Layer):
    """Layer norm with a row of parameters a round."""

    def __init__(self, rounds, **kwargs):
        super().__init__(**kwargs)
        self.rounds = rounds

    def build(self, input_shape):
        self.gamma = self.add_weight(name="gamma", shape=(self.rounds, input_shape[-1]), initializer="ones")
        self.beta = self.add_weight(name="beta", shape=(self.rounds, input_shape[-1]), initializer="zeros")

    def call(self, x, turn):
        mean, variance = ops.moments(x, axes=-1, keepdims=True)
        return (x - mean) * ops.rsqrt(variance + 1e-5) * self.gamma[turn] + self.beta[turn]


class RoundAttention(keras.layers.Layer):
    """Multi-head attention of one query a node, with stacked parameters, a slice a round."""

    def __init__(self, rounds, dim, heads, **kwargs):
        super().__init__(**kwargs)
        self.rounds, self.dim, self.heads = rounds, dim, heads

    def build(self, query_shape, memory_shape, bias_shape=None):
        init = keras.initializers.RandomNormal(stddev=self.dim**-0.5)
        self.query = self.add_weight(name="query", shape=(self.rounds, self.dim, self.dim), initializer=init)
        self.memory = self.add_weight(
            name="memory", shape=(self.rounds, self.dim, 2 * self.dim), initializer=init
        )
        self.output_ = self.add_weight(
            name="output", shape=(self.rounds, self.dim, self.dim), initializer=init
        )

    def call(self, query, memory, turn, bias=None):
        """query (..., d), memory (..., m, d), bias (..., m)."""
        width = self.dim // self.heads
        q = ops.matmul(query, self.query[turn])
        q = ops.reshape(q, (-1,) + tuple(query.shape[1:-1]) + (self.heads, width))
        kv = ops.matmul(memory, self.memory[turn])
        kv = ops.reshape(kv, (-1,) + tuple(memory.shape[1:-1]) + (2, self.heads, width))
        k, v = kv[..., 0, :, :], kv[..., 1, :, :]
        scores = ops.einsum("...hw,...mhw->...hm", q, k) / width**0.5
        if bias is not None:
            scores = scores + bias[..., None, :]
        x = ops.einsum("...hm,...mhw->...hw", ops.softmax(scores, axis=-1), v)
        x = ops.reshape(x, (-1,) + tuple(query.shape[1:]))
        return ops.matmul(x, self.output_[turn])


class StarTransformer(keras.Model):
    def __init__(self, dim=16, heads=2, rounds=2, codes=5, **kwargs):
        super().__init__(**kwargs)
        self.rounds = rounds
        self.words = keras.layers.Embedding(WORDS + 1, dim, name="words")
        self.places = sinusoids(LONGEST, dim)
        self.ring = RoundAttention(rounds, dim, heads, name="ring")
        self.ring_norm = RoundNorm(rounds, name="ring_norm")
        self.star = RoundAttention(rounds, dim, heads, name="star")
        self.star_norm = RoundNorm(rounds, name="star_norm")
        self.code = keras.layers.Dense(codes, name="code")

    def call(self, notes):
        real = ops.not_equal(notes, 0)
        length = ops.sum(ops.cast(real, "int32"), axis=1, keepdims=True)
        e = self.words(notes) * 8.0 + self.places
        weight = ops.cast(real, e.dtype)
        place = ops.arange(LONGEST, dtype="int32")[None]
        after = ops.where(place + 1 < length, place + 1, 0)
        before = ops.where(place > 0, place - 1, length - 1)

        h = e
        relay = ops.sum(e * weight[..., None], axis=1) / ops.sum(weight, axis=1, keepdims=True)
        away = ops.where(real, 0.0, FAR)
        away = ops.cast(ops.pad(away, ((0, 0), (1, 0))), e.dtype)
        for turn in range(self.rounds):
            left = ops.take_along_axis(h, before[..., None], axis=1)
            right = ops.take_along_axis(h, after[..., None], axis=1)
            shared = ops.broadcast_to(relay[:, None], ops.shape(h))
            around = ops.stack([left, h, right, e, shared], axis=2)
            h = self.ring_norm(ops.relu(self.ring(h, around, turn=turn)), turn=turn)
            everyone = ops.concatenate([relay[:, None], h], axis=1)
            relay = self.star_norm(ops.relu(self.star(relay, everyone, turn=turn, bias=away)), turn=turn)
        peak = ops.max(h + ops.cast(away[:, 1:, None], h.dtype), axis=1)
        return self.code(relay + peak)


def build():
    return StarTransformer()
