"""Small Longformer that sorts contracts; the first token sees and is seen by all."""

import keras
import numpy as np
from keras import layers, ops

VOCAB, LENGTH, WIDTH, HEADS, REACH, KINDS = 120, 32, 24, 3, 4, 5


class WindowAttention(layers.Layer):
    def __init__(self, width=WIDTH, heads=HEADS, reach=REACH, **kwargs):
        super().__init__(**kwargs)
        self.heads, self.reach = heads, reach
        self.size = width // heads
        for name in ("query", "key", "value", "query_global", "key_global", "value_global", "out"):
            setattr(self, name, layers.Dense(width, name=name))

    def build(self, input_shape):
        for name in ("query", "key", "value", "query_global", "key_global", "value_global", "out"):
            getattr(self, name).build(input_shape)
        super().build(input_shape)

    def split(self, x):
        return ops.transpose(ops.reshape(x, (-1, x.shape[1], self.heads, self.size)), (0, 2, 1, 3))

    def attend(self, q, k, v, allowed):
        scores = ops.matmul(q, ops.swapaxes(k, -1, -2)) * self.size**-0.5
        scores = ops.where(allowed, scores, -1e9)
        return ops.matmul(ops.softmax(scores, axis=-1), v)

    def call(self, x, keep):
        length = x.shape[1]
        place = np.arange(length)
        near = np.abs(place[:, None] - place[None]) <= self.reach
        near[:, 0] = True
        real = keep[:, None, None, :]
        local = self.attend(
            self.split(self.query(x)),
            self.split(self.key(x)),
            self.split(self.value(x)),
            ops.logical_and(near[None, None], real),
        )
        first = self.attend(
            self.split(self.query_global(x[:, :1])),
            self.split(self.key_global(x)),
            self.split(self.value_global(x)),
            real,
        )
        y = ops.concatenate([first, local[:, :, 1:]], axis=2)
        y = ops.reshape(ops.transpose(y, (0, 2, 1, 3)), (-1, length, self.heads * self.size))
        return self.out(y)


class Positions(layers.Layer):
    def __init__(self, length, width, **kwargs):
        super().__init__(**kwargs)
        self.table = layers.Embedding(length, width, name="table")
        self.length = length

    def build(self, input_shape):
        self.table.build()
        super().build(input_shape)

    def call(self, x):
        return x + self.table(ops.arange(self.length))


def build():
    tokens = keras.Input((LENGTH,), dtype="int32", name="tokens")
    keep = ops.not_equal(tokens, 0)
    x = layers.Embedding(VOCAB, WIDTH, name="words")(tokens)
    x = Positions(LENGTH, WIDTH, name="positions")(x)
    x = layers.LayerNormalization(epsilon=1e-5, name="embedding_norm")(x)
    for i in range(2):
        y = WindowAttention(name=f"attention_{i}")(x, keep)
        x = layers.LayerNormalization(epsilon=1e-5, name=f"attention_norm_{i}")(x + y)
        y = layers.Dense(2 * WIDTH, activation="gelu", name=f"widen_{i}")(x)
        y = layers.Dense(WIDTH, name=f"narrow_{i}")(y)
        x = layers.LayerNormalization(epsilon=1e-5, name=f"feed_norm_{i}")(x + y)
    weight = ops.expand_dims(ops.cast(keep, x.dtype), -1)
    average = ops.sum(x * weight, axis=1) / ops.sum(weight, axis=1)
    x = layers.Concatenate()([x[:, 0], average])
    x = layers.Dense(WIDTH, activation="tanh", name="pooler")(x)
    kinds = layers.Dense(KINDS, name="kinds")(x)
    return keras.Model(tokens, kinds, name="contracts")
