"""Click model: deep & cross network with low-rank cross layers.

Fields: campaign (40 values), site (25), device (6); five dense features.
The site table comes from a text model and is not trained.
"""

import keras
from keras import layers, ops

VOCAB = {"campaign": 40, "site": 25, "device": 6}
WIDTH = {"campaign": 8, "site": 6, "device": 3}
N_DENSE = 5


class LowRankCross(layers.Layer):
    """x0 * (U V x + b) + x"""

    def __init__(self, rank, **kwargs):
        super().__init__(**kwargs)
        self.rank = rank

    def build(self, x0_shape, x_shape=None):
        dim = x0_shape[-1]
        self.v = self.add_weight(name="v", shape=(dim, self.rank), initializer="glorot_uniform")
        self.u = self.add_weight(name="u", shape=(self.rank, dim), initializer="glorot_uniform")
        self.b = self.add_weight(name="b", shape=(dim,), initializer="zeros")
        super().build(x0_shape)

    def call(self, x0, x):
        return x0 * (ops.matmul(ops.matmul(x, self.v), self.u) + self.b) + x


class FieldEmbedding(layers.Layer):
    """Table of one column of the ids, read as a product with one-hot rows.

    The tables are small, and gradients stay dense this way.
    """

    def __init__(self, column, vocab, width, **kwargs):
        super().__init__(**kwargs)
        self.column, self.vocab, self.width = column, vocab, width

    def build(self, input_shape):
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.vocab, self.width),
            initializer=keras.initializers.RandomNormal(stddev=0.4),
        )
        super().build(input_shape)

    def call(self, ids):
        rows = ops.one_hot(ids[:, self.column], self.vocab, dtype=self.compute_dtype)
        return ops.matmul(rows, self.embeddings)


def build():
    ids = keras.Input((3,), dtype="int32", name="ids")
    dense = keras.Input((N_DENSE,), name="dense")
    parts = []
    for i, field in enumerate(VOCAB):
        table = FieldEmbedding(i, VOCAB[field], WIDTH[field], name=field, trainable=field != "site")
        parts.append(table(ids))
    squeezed = layers.Lambda(lambda t: ops.sign(t) * ops.log1p(ops.abs(t)), name="log_scale")(dense)
    x0 = layers.Concatenate(name="x0")(parts + [squeezed])
    x = LowRankCross(4, name="cross1")(x0, x0)
    x = LowRankCross(4, name="cross2")(x0, x)
    deep = layers.Dense(20, activation="relu", name="deep1")(x0)
    deep = layers.Dense(12, activation="relu", name="deep2")(deep)
    joined = layers.Concatenate(name="joined")([x, deep])
    return keras.Model([ids, dense], layers.Dense(1, name="click")(joined), name="dcn")


def make():
    return keras.optimizers.Adagrad(learning_rate=0.0625, initial_accumulator_value=0.125, epsilon=1e-12)
