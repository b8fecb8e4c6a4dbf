"""code2seq: names of methods from paths through their syntax trees."""

import keras
from keras import layers, ops

CONTEXTS = 8
SUBTOKENS = 3
PATH = 6
NAME = 4
TOKENS = 60
NODES = 30
WORDS = 40
WIDTH = 24


class SubtokenSum(layers.Layer):
    """The sum of the embeddings of a terminal's subtokens."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.table = layers.Embedding(TOKENS, WIDTH, name="table")

    def build(self, shape):
        self.table.build(shape)
        super().build(shape)

    def call(self, ids):
        there = ops.cast(ops.not_equal(ids, 0), self.compute_dtype)
        return ops.sum(self.table(ids) * there[..., None], axis=-2)


class PathEncoder(layers.Layer):
    """The last states, both ways, of a GRU over the nodes of a path."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.table = layers.Embedding(NODES, 16, name="table")
        self.rnn = layers.Bidirectional(layers.GRU(12, name="gru"), name="rnn")

    def build(self, shape):
        self.table.build((None, PATH))
        self.rnn.build((None, PATH, 16))
        super().build(shape)

    def call(self, ids):
        flat = ops.reshape(ids, (-1, PATH))
        last = self.rnn(self.table(flat), mask=ops.not_equal(flat, 0))
        return ops.reshape(last, (-1, CONTEXTS, 24))


class Decoder(layers.Layer):
    """A GRU over the name so far, that looks at the contexts."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.table = layers.Embedding(WORDS, WIDTH, name="table")
        self.rnn = layers.GRU(WIDTH, return_sequences=True, name="rnn")
        self.bilinear = layers.Dense(WIDTH, use_bias=False, name="bilinear")
        self.merge = layers.Dense(WIDTH, activation="tanh", use_bias=False, name="merge")
        self.words = layers.Dense(WORDS, use_bias=False, name="words")

    def build(self, shapes):
        self.table.build((None, NAME))
        self.rnn.build((None, NAME, WIDTH))
        self.bilinear.build((None, CONTEXTS, WIDTH))
        self.merge.build((None, NAME, 2 * WIDTH))
        self.words.build((None, NAME, WIDTH))
        super().build(shapes)

    def call(self, inputs):
        contexts, valid, prefix = inputs
        count = ops.sum(valid, axis=1, keepdims=True)
        start = ops.sum(contexts * valid[..., None], axis=1) / count
        states = self.rnn(self.table(prefix), initial_state=start)
        energy = ops.einsum("btd,bcd->btc", states, self.bilinear(contexts))
        energy = energy + (1.0 - valid[:, None]) * -1e9
        glimpse = ops.einsum("btc,bcd->btd", ops.softmax(energy, axis=-1), contexts)
        return self.words(self.merge(ops.concatenate([glimpse, states], axis=-1)))


def build():
    starts = keras.Input((CONTEXTS, SUBTOKENS), dtype="int32", name="starts")
    paths = keras.Input((CONTEXTS, PATH), dtype="int32", name="paths")
    ends = keras.Input((CONTEXTS, SUBTOKENS), dtype="int32", name="ends")
    prefix = keras.Input((NAME,), dtype="int32", name="prefix")
    terminals = SubtokenSum(name="terminals")
    joined = layers.Concatenate(name="joined")(
        [terminals(starts), PathEncoder(name="path")(paths), terminals(ends)]
    )
    contexts = layers.Dense(WIDTH, activation="tanh", use_bias=False, name="combine")(joined)
    valid = ops.cast(ops.not_equal(paths[..., 0], 0), contexts.dtype)
    logits = Decoder(name="decoder")([contexts, valid, prefix])
    return keras.Model(
        {"starts": starts, "paths": paths, "ends": ends, "prefix": prefix}, logits, name="code2seq"
    )


def loss(targets, outputs):
    """The negative log-likelihood of whole names, averaged over the methods."""
    there = ops.cast(ops.not_equal(targets, 0), outputs.dtype)
    nll = keras.losses.sparse_categorical_crossentropy(targets, outputs, from_logits=True)
    return ops.mean(ops.sum(nll * there, axis=-1))
