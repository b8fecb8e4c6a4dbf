"""Mogrifier LSTM language model with tied embeddings and activation regularisation."""

import keras
from keras import layers, ops

VOCAB, DIM, HIDDEN, ROUNDS, RANK = 80, 24, 32, 4, 8
AR, TAR = 0.2, 0.1


class MogrifierCell(layers.Layer):
    """LSTM cell whose input and state gate each other before the step; input gate coupled to the forget gate."""

    def __init__(self, units, rounds, rank, **kw):
        super().__init__(**kw)
        self.units, self.rounds, self.rank = units, rounds, rank
        self.state_size = [units, units]
        self.output_size = units

    def build(self, shape):
        dim = shape[-1]
        self.down, self.up = [], []
        for i in range(self.rounds):
            source, target = (self.units, dim) if i % 2 == 0 else (dim, self.units)
            self.down.append(
                self.add_weight(shape=(source, self.rank), initializer="orthogonal", name=f"down{i}")
            )
            self.up.append(
                self.add_weight(shape=(self.rank, target), initializer="glorot_uniform", name=f"up{i}")
            )
        self.kernel = self.add_weight(
            shape=(dim, 3 * self.units), initializer="glorot_uniform", name="kernel"
        )
        self.recurrent_kernel = self.add_weight(
            shape=(self.units, 3 * self.units), initializer="orthogonal", name="recurrent_kernel"
        )
        self.bias = self.add_weight(shape=(3 * self.units,), initializer="zeros", name="bias")

    def call(self, x, states, training=False):
        h, c = states
        for i in range(self.rounds):
            if i % 2 == 0:
                x = 2.0 * ops.sigmoid(h @ self.down[i] @ self.up[i]) * x
            else:
                h = 2.0 * ops.sigmoid(x @ self.down[i] @ self.up[i]) * h
        z = x @ self.kernel + h @ self.recurrent_kernel + self.bias
        f, g, o = ops.split(z, 3, axis=-1)
        f = ops.sigmoid(f)
        c = f * c + (1.0 - f) * ops.tanh(g)
        h = ops.sigmoid(o) * ops.tanh(c)
        return h, [h, c]


class TiedLogits(layers.Layer):
    """Logits from the embedding table, softly capped."""

    def __init__(self, embedding, cap=15.0, **kw):
        super().__init__(**kw)
        self.embedding, self.cap = embedding, cap

    def build(self, shape):
        self.bias = self.add_weight(shape=(VOCAB,), initializer="zeros", name="bias")

    def call(self, x):
        z = ops.matmul(x, ops.transpose(self.embedding.embeddings)) + self.bias
        return self.cap * ops.tanh(z / self.cap)


class ActivationPenalty(layers.Layer):
    """AR on the size of the states and TAR on their change, over real positions."""

    def call(self, h, mask):
        m = ops.cast(mask, h.dtype)
        both = m[:, 1:] * m[:, :-1]
        size = ops.sum(m * ops.mean(ops.square(h), axis=-1)) / ops.sum(m)
        change = ops.sum(both * ops.mean(ops.square(h[:, 1:] - h[:, :-1]), axis=-1)) / ops.sum(both)
        self.add_loss(AR * size + TAR * change)
        return h


def build():
    tokens = keras.Input((None,), dtype="int32", name="tokens")
    mask = ops.not_equal(tokens, 0)
    embedding = layers.Embedding(
        VOCAB, DIM, embeddings_initializer=keras.initializers.RandomNormal(stddev=0.3), name="embedding"
    )
    x = embedding(tokens)
    h = layers.RNN(MogrifierCell(HIDDEN, ROUNDS, RANK, name="cell1"), return_sequences=True, name="rnn1")(
        x, mask=mask
    )
    h2 = layers.RNN(MogrifierCell(HIDDEN, ROUNDS, RANK, name="cell2"), return_sequences=True, name="rnn2")(
        h, mask=mask
    )
    h = ActivationPenalty(name="penalty")(h + h2, mask)
    y = layers.Dense(DIM, use_bias=False, name="bottleneck")(h)
    y = layers.RMSNormalization(epsilon=1e-6, name="norm")(y)
    return keras.Model(tokens, TiedLogits(embedding, name="logits")(y), name="mogrifier_lm")


def loss(targets, outputs):
    """Mean over the tokens of the batch; 0 is padding."""
    mask = ops.cast(ops.not_equal(targets, 0), outputs.dtype)
    ce = keras.losses.sparse_categorical_crossentropy(targets, outputs, from_logits=True)
    return ops.sum(ce * mask) / ops.sum(mask)
