"""Word-level LSTM language model; the input embedding is also the output projection."""

import keras
from keras import layers, ops
from keras.initializers import RandomNormal


class TiedProjection(layers.Layer):
    def __init__(self, embedding, words, **kwargs):
        super().__init__(**kwargs)
        self.embedding = embedding
        self.words = words

    def build(self, shape):
        self.bias = self.add_weight(shape=(self.words,), initializer="zeros", name="bias")

    def call(self, x):
        return ops.matmul(x, ops.transpose(self.embedding.embeddings)) + self.bias


def build(words=70, dim=32):
    ids = keras.Input((15,), dtype="int32", name="x")
    embedding = layers.Embedding(
        words, dim, embeddings_initializer=RandomNormal(stddev=dim**-0.5), name="embedding"
    )
    h = embedding(ids)
    h = layers.LSTM(dim, return_sequences=True, name="lstm1")(h)
    h = layers.LSTM(dim, return_sequences=True, name="lstm2")(h)
    return keras.Model(ids, TiedProjection(embedding, words, name="decoder")(h), name="tied_lm")
