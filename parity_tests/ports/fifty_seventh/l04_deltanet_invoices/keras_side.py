"""Next token of invoice lines with fast weights: layers that write by the delta rule."""

import keras
import tensorflow as tf
from keras import layers, ops

VOCAB = 40
LENGTH = 24
WIDTH = 24
HEADS = 2
HEAD = 8
PAD = 0


def unit(x):
    return x * tf.math.rsqrt(tf.reduce_sum(tf.square(x), axis=-1, keepdims=True) + 1e-6)


class DeltaRule(layers.Layer):
    """A matrix a head: what the key recalls is replaced, by the share beta, with the value."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        inner = HEADS * HEAD
        self.query = layers.Dense(inner, use_bias=False, name="query")
        self.key = layers.Dense(inner, use_bias=False, name="key")
        self.value = layers.Dense(inner, use_bias=False, name="value")
        self.key_conv = layers.Conv1D(
            inner, 3, padding="causal", groups=inner, use_bias=False, name="key_conv"
        )
        self.value_conv = layers.Conv1D(
            inner, 3, padding="causal", groups=inner, use_bias=False, name="value_conv"
        )
        self.beta = layers.Dense(HEADS, activation="sigmoid", name="beta")
        self.gate = layers.Dense(inner, name="gate")
        self.read_norm = layers.RMSNormalization(epsilon=1e-5, name="read_norm")
        self.out = layers.Dense(WIDTH, use_bias=False, name="out")

    def call(self, x):
        def heads(t):
            return tf.reshape(t, (-1, LENGTH, HEADS, HEAD))

        q = unit(heads(tf.nn.silu(self.query(x))))
        k = unit(heads(tf.nn.silu(self.key_conv(self.key(x)))))
        v = heads(tf.nn.silu(self.value_conv(self.value(x))))
        beta = self.beta(x)

        state = tf.zeros((tf.shape(x)[0], HEADS, HEAD, HEAD), x.dtype)
        reads = []
        for t in range(LENGTH):
            recalled = tf.einsum("bhvk,bhk->bhv", state, k[:, t])
            write = beta[:, t, :, None] * (v[:, t] - recalled)
            state = state + write[..., :, None] * k[:, t, :, None, :]
            reads.append(tf.einsum("bhvk,bhk->bhv", state, q[:, t]))
        read = self.read_norm(tf.stack(reads, axis=1))
        read = tf.reshape(read, (-1, LENGTH, HEADS * HEAD))
        return self.out(read * tf.nn.silu(self.gate(x)))


class Feed(layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.up = layers.Dense(units, use_bias=False, name="up")
        self.gate = layers.Dense(units, activation="silu", use_bias=False, name="gate")
        self.down = layers.Dense(WIDTH, use_bias=False, name="down")

    def call(self, x):
        return self.down(self.up(x) * self.gate(x))


class DeltaNet(keras.Model):
    def __init__(self, depth=2, **kwargs):
        super().__init__(**kwargs)
        self.table = layers.Embedding(VOCAB, WIDTH, name="table")
        self.norms = [layers.RMSNormalization(epsilon=1e-5, name=f"norm{i}") for i in range(2 * depth)]
        self.memories = [DeltaRule(name=f"memory{i}") for i in range(depth)]
        self.feeds = [Feed(40, name=f"feed{i}") for i in range(depth)]
        self.last_norm = layers.RMSNormalization(epsilon=1e-5, name="last_norm")

    def call(self, tokens):
        x = self.table(tokens)
        for i, (memory, feed) in enumerate(zip(self.memories, self.feeds)):
            x = x + memory(self.norms[2 * i](x))
            x = x + feed(self.norms[2 * i + 1](x))
        x = self.last_norm(x)
        return tf.einsum("btd,vd->btv", x, tf.convert_to_tensor(self.table.embeddings))


def loss(targets, outputs):
    """Mean over a line's tokens; padding at its end does not count."""
    targets = ops.cast(targets, "int32")
    mask = ops.cast(targets != PAD, outputs.dtype)
    entropy = keras.losses.sparse_categorical_crossentropy(targets, outputs, from_logits=True)
    return ops.sum(entropy * mask, axis=1) / ops.sum(mask, axis=1)


def build():
    model = DeltaNet(name="deltanet")
    model(tf.zeros((1, LENGTH), tf.int32))
    return model
