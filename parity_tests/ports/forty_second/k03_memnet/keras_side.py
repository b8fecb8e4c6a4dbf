"""End-to-end memory network (three hops, adjacent tying) for one-word answers."""

import keras
import numpy as np
from keras import ops
from keras.layers import Dense, Embedding, Input, Softmax

VOCAB, SENTENCES, WORDS, QWORDS, DIM, HOPS = 28, 8, 7, 5, 20, 3


def position_table(length, dim):
    j = np.arange(1, length + 1, dtype=np.float32)[:, None]
    k = np.arange(1, dim + 1, dtype=np.float32)[None, :]
    return (1 - j / length) - (k / dim) * (1 - 2 * j / length)


class BagOfWords(keras.layers.Layer):
    """Position-encoded sum of the words' vectors; word 0 is padding."""

    def __init__(self, table, length, **kwargs):
        super().__init__(**kwargs)
        self.table = table
        self.positions = position_table(length, DIM)

    def call(self, ids):
        real = ops.cast(ops.not_equal(ids, 0), self.compute_dtype)
        return ops.sum(self.table(ids) * self.positions * ops.expand_dims(real, -1), axis=-2)


class Times(keras.layers.Layer):
    def build(self, _):
        self.t = self.add_weight(
            shape=(SENTENCES, DIM), initializer=keras.initializers.RandomNormal(stddev=0.1), name="t"
        )

    def call(self, memory):
        return memory + self.t


def build():
    story = Input((SENTENCES, WORDS), dtype="int32", name="story")
    question = Input((QWORDS,), dtype="int32", name="question")
    init = keras.initializers.RandomNormal(stddev=0.3)
    tables = [Embedding(VOCAB, DIM, embeddings_initializer=init, name=f"words_{i}") for i in range(HOPS + 1)]
    memories = []
    for i, tab in enumerate(tables):
        memories.append(Times(name=f"times_{i}")(BagOfWords(tab, WORDS, name=f"story_{i}")(story)))
    empty = ops.all(ops.equal(story, 0), axis=-1)

    u = BagOfWords(tables[0], QWORDS, name="query")(question)
    for hop in range(HOPS):
        m, c = memories[hop], memories[hop + 1]
        match = ops.einsum("bsd,bd->bs", m, u)
        p = Softmax(name=f"attend_{hop}")(ops.where(empty, -1e9, match))
        o = ops.einsum("bs,bsd->bd", p, c)
        u = u + o
    return keras.Model([story, question], Dense(VOCAB, use_bias=False, name="answer")(u), name="memn2n")
