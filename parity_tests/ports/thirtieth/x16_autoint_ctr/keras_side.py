"""AutoInt click model: field embeddings, self-attentive interactions, wide part.

Inputs: `cats` six categorical ids, `tags` up to five tag ids (0 pads), `dense`
four numbers. Output: click logit. Trained with Adagrad.
"""

import keras
from keras import layers, ops

CARDS = (12, 7, 20, 5, 9, 15)
TAGS, N_DENSE, DIM, HEADS = 18, 4, 12, 2


class FieldOffset(layers.Layer):
    """All categorical fields share one table; each has its own block of rows."""

    def call(self, ids):
        starts = [sum(CARDS[:i]) for i in range(len(CARDS))]
        return ids + ops.convert_to_tensor(starts, dtype=ids.dtype)


class OneHotEmbedding(layers.Layer):
    """The tables are tiny: a one-hot matrix product beats a gather on our TPUs."""

    def __init__(self, rows, dim, **kw):
        super().__init__(**kw)
        self.rows, self.dim = rows, dim

    def build(self, shape):
        self.table = self.add_weight(name="table", shape=(self.rows, self.dim), initializer="uniform")

    def call(self, ids):
        return ops.matmul(ops.one_hot(ids, self.rows, dtype=self.table.dtype), self.table)


class OneHotBag(OneHotEmbedding):
    """Mean over the tags that are there; id 0 is no tag."""

    def call(self, ids):
        hot = ops.one_hot(ids, self.rows, dtype=self.table.dtype)
        real = ops.cast(ops.not_equal(ids, 0), hot.dtype)[..., None]
        share = ops.sum(hot * real, axis=1, keepdims=True)
        share = share / ops.maximum(ops.sum(real, axis=1, keepdims=True), 1.0)
        return ops.matmul(share, self.table)


class NumericFields(layers.Layer):
    def build(self, shape):
        self.vectors = self.add_weight(name="vectors", shape=(N_DENSE, DIM), initializer="uniform")

    def call(self, x):
        return x[..., None] * self.vectors


def interacting(x, name):
    att = layers.MultiHeadAttention(HEADS, DIM // HEADS, name=name + "_mha")(x, x)
    res = layers.Dense(DIM, use_bias=False, name=name + "_res")(x)
    return ops.relu(att + res)


def build():
    cats = keras.Input((len(CARDS),), dtype="int32", name="cats")
    tags = keras.Input((5,), dtype="int32", name="tags")
    dense = keras.Input((N_DENSE,), name="dense")
    ids = FieldOffset()(cats)
    fields = layers.Concatenate(axis=1)(
        [
            OneHotEmbedding(sum(CARDS), DIM, name="cat_embed")(ids),
            OneHotBag(TAGS, DIM, name="tag_embed")(tags),
            NumericFields(name="numeric")(dense),
        ]
    )
    x = interacting(fields, "int1")
    x = interacting(x, "int2")
    deep = layers.Dense(1, name="deep")(layers.Flatten()(x))
    wide = ops.sum(OneHotEmbedding(sum(CARDS), 1, name="wide_cat")(ids), axis=1)
    wide = wide + layers.Dense(1, use_bias=False, name="wide_dense")(dense)
    return keras.Model([cats, tags, dense], deep + wide, name="autoint")


def optimizer():
    return keras.optimizers.Adagrad(learning_rate=0.05, epsilon=1e-10)
