"""Decoder language model with multi-head latent attention on the steps of pastry recipes."""

import keras
import numpy as np
from keras import layers, ops

VOCAB = 40
LENGTH = 18
WIDTH = 24
HEADS = 3
NOPE, ROPE, VALUE = 8, 4, 6
Q_RANK, KV_RANK = 14, 10
DEPTH = 3

ANGLES = np.outer(np.arange(LENGTH), 100.0 ** (-np.arange(0, ROPE, 2) / ROPE))
COS = np.cos(ANGLES).astype(np.float32)
SIN = np.sin(ANGLES).astype(np.float32)
CAUSAL = np.tril(np.ones((LENGTH, LENGTH), bool))


def rotate(x):
    """Rotary positions of (batch, length, heads, size), pairs side by side."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cos = ops.cast(COS, x.dtype)[:, None, :]
    sin = ops.cast(SIN, x.dtype)[:, None, :]
    turned = ops.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    return ops.reshape(turned, ops.shape(x))


class LatentAttention(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.q_down = layers.Dense(Q_RANK, use_bias=False, name="q_down")
        self.q_norm = layers.RMSNormalization(epsilon=1e-6, name="q_norm")
        self.q_up = layers.Dense(HEADS * (NOPE + ROPE), use_bias=False, name="q_up")
        self.kv_down = layers.Dense(KV_RANK + ROPE, use_bias=False, name="kv_down")
        self.kv_norm = layers.RMSNormalization(epsilon=1e-6, name="kv_norm")
        self.kv_up = layers.Dense(HEADS * (NOPE + VALUE), use_bias=False, name="kv_up")
        self.out = layers.Dense(WIDTH, use_bias=False, name="out")

    def call(self, x):
        q = ops.reshape(self.q_up(self.q_norm(self.q_down(x))), (-1, LENGTH, HEADS, NOPE + ROPE))
        q = ops.concatenate([q[..., :NOPE], rotate(q[..., NOPE:])], axis=-1)

        packed = self.kv_down(x)
        latent, k_rope = packed[..., :KV_RANK], packed[..., KV_RANK:]
        kv = ops.reshape(self.kv_up(self.kv_norm(latent)), (-1, LENGTH, HEADS, NOPE + VALUE))
        k_rope = ops.repeat(rotate(k_rope[:, :, None, :]), HEADS, axis=2)
        k = ops.concatenate([kv[..., :NOPE], k_rope], axis=-1)
        v = kv[..., NOPE:]

        score = ops.einsum("bqhd,bkhd->bhqk", q, k) / float(np.sqrt(NOPE + ROPE))
        score = ops.where(CAUSAL, score, -1e9)
        z = ops.einsum("bhqk,bkhd->bqhd", ops.softmax(score, axis=-1), v)
        return self.out(ops.reshape(z, (-1, LENGTH, HEADS * VALUE)))


class SwiGLU(layers.Layer):
    def __init__(self, inner, **kwargs):
        super().__init__(**kwargs)
        self.gate = layers.Dense(inner, use_bias=False, name="gate")
        self.up = layers.Dense(inner, use_bias=False, name="up")
        self.down = layers.Dense(WIDTH, use_bias=False, name="down")

    def call(self, x):
        return self.down(ops.silu(self.gate(x)) * self.up(x))


class PastryLM(keras.Model):
    def __init__(self):
        super().__init__(name="pastry_lm")
        self.words = layers.Embedding(VOCAB, WIDTH, name="words")
        self.attn_norms = [layers.RMSNormalization(epsilon=1e-6, name=f"attn_norm_{i}") for i in range(DEPTH)]
        self.attns = [LatentAttention(name=f"attn_{i}") for i in range(DEPTH)]
        self.ffn_norms = [layers.RMSNormalization(epsilon=1e-6, name=f"ffn_norm_{i}") for i in range(DEPTH)]
        self.ffns = [SwiGLU(32, name=f"ffn_{i}") for i in range(DEPTH)]
        self.last_norm = layers.RMSNormalization(epsilon=1e-6, name="last_norm")

    def call(self, tokens):
        x = self.words(tokens) * float(np.sqrt(WIDTH))
        for i in range(DEPTH):
            x = x + self.attns[i](self.attn_norms[i](x))
            x = x + self.ffns[i](self.ffn_norms[i](x))
        x = self.last_norm(x)
        return ops.matmul(x, ops.transpose(self.words.embeddings)) * WIDTH**-0.5


def loss(targets, outputs):
    """Cross entropy with a penalty on the log partition; the mean over the words of each recipe."""
    targets = ops.cast(targets, "int32")
    partition = ops.logsumexp(outputs, axis=-1)
    chosen = ops.take_along_axis(outputs, targets[..., None], axis=-1)[..., 0]
    value = partition - chosen + 1e-2 * ops.square(partition)
    real = ops.cast(targets > 0, outputs.dtype)
    return ops.sum(value * real, axis=-1) / ops.sum(real, axis=-1)


class WarmStableDecay(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, peak=4e-3, warm=6, decay_from=20, end=60):
        self.peak, self.warm, self.decay_from, self.end = peak, warm, decay_from, end

    def __call__(self, step):
        step = ops.cast(step, "float32")
        rise = (step + 1.0) / self.warm
        part = ops.clip((step - self.decay_from) / (self.end - self.decay_from), 0.0, 1.0)
        return self.peak * ops.minimum(rise, 1.0 - ops.sqrt(part))

    def get_config(self):
        return {"peak": self.peak, "warm": self.warm, "decay_from": self.decay_from, "end": self.end}


def optimizer():
    adamw = keras.optimizers.AdamW(WarmStableDecay(), weight_decay=0.1, beta_2=0.95, global_clipnorm=0.12)
    adamw.exclude_from_weight_decay(var_names=["scale"])
    return adamw


def build():
    return PastryLM()
