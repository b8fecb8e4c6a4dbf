"""Sentence classification: a small pre-norm Transformer encoder, read out at the first token."""

import keras
from keras import layers, ops

VOCABULARY, LENGTH, WIDTH, CLASSES = 50, 16, 16, 4


class SelfAttention(layers.Layer):
    def __init__(self, heads=2, **kwargs):
        super().__init__(**kwargs)
        self.heads = heads

    def build(self, shape):
        width = shape[-1]
        for name in ("query", "key", "value", "output_"):
            dense = layers.Dense(width, name=name)
            dense.build(shape)
            setattr(self, name, dense)

    def split(self, x):
        return ops.transpose(ops.reshape(x, (-1, LENGTH, self.heads, WIDTH // self.heads)), (0, 2, 1, 3))

    def call(self, x, keep):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = ops.einsum("bhqd,bhkd->bhqk", q, k) / (WIDTH // self.heads) ** 0.5
        scores = scores + (1 - ops.cast(keep, scores.dtype))[:, None, None, :] * -1e9
        x = ops.einsum("bhqk,bhkd->bhqd", ops.softmax(scores), v)
        return self.output_(ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, LENGTH, WIDTH)))


class TokenAndPosition(layers.Layer):
    def build(self, shape):
        self.tokens = layers.Embedding(VOCABULARY, WIDTH, name="tokens")
        self.tokens.build(shape)
        self.positions = self.add_weight(
            shape=(LENGTH, WIDTH), name="positions", initializer=keras.initializers.RandomNormal(stddev=0.2)
        )

    def call(self, ids):
        return self.tokens(ids) * WIDTH**0.5 + self.positions


def build():
    ids = keras.Input((LENGTH,), dtype="int32", name="ids")
    keep = ops.not_equal(ids, 0)
    x = TokenAndPosition(name="embedding")(ids)
    for i in range(2):
        x = x + SelfAttention(name=f"attention{i}")(
            layers.LayerNormalization(epsilon=1e-5, name=f"ln_a{i}")(x), keep
        )
        h = layers.LayerNormalization(epsilon=1e-5, name=f"ln_b{i}")(x)
        x = x + layers.Dense(WIDTH, name=f"down{i}")(layers.Dense(40, activation="gelu", name=f"up{i}")(h))
    x = layers.LayerNormalization(epsilon=1e-5, name="ln")(x)[:, 0]
    return keras.Model(ids, layers.Dense(CLASSES, name="classes")(x))
