"""A small RWKV (v4) language model over tokenised G-code programs."""

import keras
import numpy as np
from keras import layers, ops

VOCAB = 48
LENGTH = 16
WIDTH = 32
DEPTH = 2
PAD = 0


def ratios(index):
    """Initial mixing of a token with the one before, per channel."""
    position = np.arange(WIDTH, dtype=np.float32) / WIDTH
    return np.power(position, 1.0 - index / DEPTH).astype(np.float32)


def token_shift(x):
    return ops.pad(x[:, :-1], [[0, 0], [1, 0], [0, 0]])


class TimeMix(layers.Layer):
    def __init__(self, index, **kwargs):
        super().__init__(**kwargs)
        self.index = index
        self.key = layers.Dense(WIDTH, use_bias=False, name="key")
        self.value = layers.Dense(WIDTH, use_bias=False, name="value")
        self.receptance = layers.Dense(WIDTH, use_bias=False, name="receptance")
        self.out = layers.Dense(WIDTH, use_bias=False, name="out")

    def build(self, shape):
        mix = ratios(self.index)
        speed = -5.0 + 6.0 * (np.arange(WIDTH) / (WIDTH - 1)) ** 0.7
        first = np.log(0.3) + 0.5 * ((np.arange(WIDTH) + 1) % 3 - 1)

        def weight(name, value):
            return self.add_weight(
                name=name, shape=(WIDTH,), initializer=lambda s, dtype=None: ops.cast(value, dtype)
            )

        self.decay = weight("decay", speed.astype(np.float32))
        self.bonus = weight("bonus", first.astype(np.float32))
        self.mix_k = weight("mix_k", mix)
        self.mix_v = weight("mix_v", mix + np.float32(0.3 * self.index / DEPTH))
        self.mix_r = weight("mix_r", np.sqrt(mix))
        for layer in (self.key, self.value, self.receptance, self.out):
            layer.build(shape)
        super().build(shape)

    def wkv(self, k, v):
        w = -ops.exp(self.decay)
        num = ops.zeros_like(k[:, 0])
        den = ops.zeros_like(num)
        peak = ops.zeros_like(num) - 1e30
        outputs = []
        for t in range(k.shape[1]):
            kt, vt = k[:, t], v[:, t]
            top = ops.maximum(peak, self.bonus + kt)
            a, b = ops.exp(peak - top), ops.exp(self.bonus + kt - top)
            outputs.append((a * num + b * vt) / (a * den + b))
            top = ops.maximum(peak + w, kt)
            a, b = ops.exp(peak + w - top), ops.exp(kt - top)
            num, den, peak = a * num + b * vt, a * den + b, top
        return ops.stack(outputs, axis=1)

    def call(self, x):
        before = token_shift(x)
        k = self.key(x * self.mix_k + before * (1 - self.mix_k))
        v = self.value(x * self.mix_v + before * (1 - self.mix_v))
        r = self.receptance(x * self.mix_r + before * (1 - self.mix_r))
        return self.out(ops.sigmoid(r) * self.wkv(k, v))


class ChannelMix(layers.Layer):
    def __init__(self, index, **kwargs):
        super().__init__(**kwargs)
        self.index = index
        self.key = layers.Dense(4 * WIDTH, use_bias=False, name="key")
        self.value = layers.Dense(WIDTH, use_bias=False, name="value")
        self.receptance = layers.Dense(WIDTH, use_bias=False, name="receptance")

    def build(self, shape):
        mix = ratios(self.index)

        def start(s, dtype=None):
            return ops.cast(mix, dtype)

        self.mix_k = self.add_weight(name="mix_k", shape=(WIDTH,), initializer=start)
        self.mix_r = self.add_weight(name="mix_r", shape=(WIDTH,), initializer=start)
        self.key.build(shape)
        self.value.build((*shape[:-1], 4 * WIDTH))
        self.receptance.build(shape)
        super().build(shape)

    def call(self, x):
        before = token_shift(x)
        k = self.key(x * self.mix_k + before * (1 - self.mix_k))
        r = self.receptance(x * self.mix_r + before * (1 - self.mix_r))
        return ops.sigmoid(r) * self.value(ops.square(ops.relu(k)))


def build():
    tokens = keras.Input((LENGTH,), dtype="int32", name="tokens")
    x = layers.Embedding(VOCAB, WIDTH, name="embedding")(tokens)
    x = layers.LayerNormalization(epsilon=1e-5, name="ln0")(x)
    for i in range(DEPTH):
        h = layers.LayerNormalization(epsilon=1e-5, name=f"block{i}_ln1")(x)
        x = x + TimeMix(i, name=f"block{i}_time")(h)
        h = layers.LayerNormalization(epsilon=1e-5, name=f"block{i}_ln2")(x)
        x = x + ChannelMix(i, name=f"block{i}_channel")(h)
    x = layers.LayerNormalization(epsilon=1e-5, name="ln_out")(x)
    logits = layers.Dense(VOCAB, use_bias=False, name="head")(x)
    return keras.Model(tokens, logits, name="rwkv_gcode")


def loss(targets, outputs):
    """Cross-entropy of the next token, and the pull on the largest logit."""
    valid = ops.cast(ops.not_equal(targets, PAD), outputs.dtype)
    nll = keras.losses.sparse_categorical_crossentropy(targets, outputs, from_logits=True)
    wrap = 1e-4 * ops.square(ops.max(outputs, axis=-1))
    return ops.sum((nll + 0.5 * wrap) * valid) / ops.sum(valid)
