"""Next item of a shopping session (GRU4Rec), items scored by their own embeddings."""

import keras
from keras import layers, ops


class Scores(layers.Layer):
    def __init__(self, embedding, **kwargs):
        super().__init__(**kwargs)
        self.embedding = embedding
        self.bias = self.add_weight(shape=(embedding.input_dim,), initializer="zeros", name="bias")

    def call(self, state):
        return ops.matmul(state, ops.transpose(self.embedding.embeddings)) + self.bias


def build(n_items=30, width=16, units=20):
    session = keras.Input((9,), dtype="int32", name="session")
    embedding = layers.Embedding(
        n_items, width, mask_zero=True, embeddings_initializer="glorot_uniform", name="items"
    )
    x = layers.GRU(units, name="gru")(embedding(session))
    x = layers.Dense(width, activation="tanh", name="query")(x)
    return keras.Model(session, Scores(embedding, name="scores")(x), name="gru4rec")
