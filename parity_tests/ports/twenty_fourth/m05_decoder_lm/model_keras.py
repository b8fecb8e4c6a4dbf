"""Decoder-only model over event codes (machine logs), left-padded with 0."""

import keras
import numpy as np
from keras import layers, ops

VOCAB, LENGTH, DIM, HEADS, DEPTH = 32, 16, 24, 3, 2
WARMUP, TOTAL, PEAK = 8, 60, 4e-3


def sinusoids(length, dim):
    pos = np.arange(length)[:, None]
    freq = np.exp(-np.log(10000.0) * np.arange(0, dim, 2) / dim)
    table = np.zeros((length, dim))
    table[:, 0::2] = np.sin(pos * freq)
    table[:, 1::2] = np.cos(pos * freq)
    return table


class CausalAttention(layers.Layer):
    """Multi-head self-attention over earlier, non-padding positions."""

    def build(self, shape):
        self.q, self.k, self.v, self.out = (
            layers.Dense(DIM, name=n) for n in ("query", "key", "value", "out")
        )
        for layer in (self.q, self.k, self.v, self.out):
            layer.build(shape)

    def split(self, x):
        x = ops.reshape(x, (-1, LENGTH, HEADS, DIM // HEADS))
        return ops.transpose(x, (0, 2, 1, 3))

    def call(self, x, valid):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = ops.matmul(q, ops.swapaxes(k, -1, -2)) / np.sqrt(DIM // HEADS)
        causal = np.tril(np.ones((LENGTH, LENGTH), dtype=bool))
        allowed = ops.logical_and(causal[None, None], valid[:, None, None, :])
        allowed = ops.logical_or(allowed, np.eye(LENGTH, dtype=bool)[None, None])
        scores = ops.where(allowed, scores, -1e9)
        mixed = ops.matmul(ops.softmax(scores, axis=-1), v)
        mixed = ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), (-1, LENGTH, DIM))
        return self.out(mixed)


class TiedEmbedding(layers.Embedding):
    """Token table, also used as the output projection."""

    def call(self, inputs, reverse=False):
        if reverse:
            return ops.matmul(inputs, ops.transpose(self.embeddings))
        return super().call(inputs) * np.sqrt(DIM) + sinusoids(LENGTH, DIM)

    def compute_output_spec(self, inputs, reverse=False):
        last = VOCAB if reverse else DIM
        return keras.KerasTensor((inputs.shape[0], LENGTH, last), dtype=self.compute_dtype)


def build():
    tokens = keras.Input((LENGTH,), dtype="int32", name="tokens")
    table = TiedEmbedding(VOCAB, DIM, name="tokens_table")
    valid = ops.not_equal(tokens, 0)
    x = table(tokens)
    for i in range(DEPTH):
        y = layers.LayerNormalization(epsilon=1e-5, name=f"norm_a{i}")(x)
        x = x + CausalAttention(name=f"attention{i}")(y, valid)
        y = layers.LayerNormalization(epsilon=1e-5, name=f"norm_f{i}")(x)
        y = layers.Dense(2 * DIM, activation="gelu", name=f"expand{i}")(y)
        x = x + layers.Dense(DIM, name=f"reduce{i}")(y)
    x = layers.LayerNormalization(epsilon=1e-5, name="norm_out")(x)
    return keras.Model(tokens, table(x, reverse=True), name="event_lm")


def loss(y_true, y_pred):
    """Cross entropy averaged over the non-padding targets."""
    labels = ops.cast(y_true, "int32")
    picked = ops.take_along_axis(ops.log_softmax(y_pred, axis=-1), labels[..., None], axis=-1)[..., 0]
    weight = ops.cast(ops.not_equal(labels, 0), y_pred.dtype)
    return -ops.sum(picked * weight) / ops.sum(weight)


class WarmupLinear(keras.optimizers.schedules.LearningRateSchedule):
    """Linear ramp to PEAK over WARMUP updates, then linear decay to zero."""

    def __call__(self, step):
        n = ops.cast(step, keras.backend.floatx()) + 1.0
        return PEAK * ops.minimum(n / WARMUP, (TOTAL - n) / (TOTAL - WARMUP))


def make_optimizer():
    return keras.optimizers.Adam(WarmupLinear(), beta_1=0.9, beta_2=0.98, epsilon=1e-7)
