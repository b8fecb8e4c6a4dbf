"""Hierarchical attention (Yang et al.): words make sentences, sentences a review."""

import keras
from keras import layers, ops


class Attend(layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.dense = layers.Dense(units, activation="tanh", name="dense")
        self.context = self.add_weight(
            shape=(units,), initializer=keras.initializers.RandomNormal(stddev=0.3, seed=5), name="context"
        )

    def call(self, x, mask):
        scores = ops.sum(self.dense(x) * self.context, axis=-1)
        weights = ops.softmax(ops.where(mask, scores, -1e9))
        return ops.sum(weights[..., None] * x, axis=1)


class Reviews(keras.Model):
    def __init__(self, vocabulary=40, stars=4):
        super().__init__()
        self.embedding = layers.Embedding(
            vocabulary,
            12,
            keras.initializers.RandomNormal(stddev=0.5, seed=4),
            mask_zero=True,
            name="embedding",
        )
        self.word_rnn = layers.Bidirectional(layers.GRU(10, return_sequences=True), name="word_rnn")
        self.word_attention = Attend(14, name="word_attention")
        self.sentence_rnn = layers.Bidirectional(layers.GRU(8, return_sequences=True), name="sentence_rnn")
        self.sentence_attention = Attend(12, name="sentence_attention")
        self.out = layers.Dense(stars, name="out")

    def call(self, words):
        sentences, length = words.shape[1], words.shape[2]
        flat = ops.reshape(words, (-1, length))
        mask = ops.not_equal(flat, 0)
        x = self.word_rnn(self.embedding(flat), mask=mask)
        x = self.word_attention(x, mask)
        x = ops.reshape(x, (-1, sentences, x.shape[-1]))
        mask = ops.any(ops.not_equal(words, 0), axis=-1)
        x = self.sentence_rnn(x, mask=mask)
        return self.out(self.sentence_attention(x, mask))


def build():
    return Reviews()
