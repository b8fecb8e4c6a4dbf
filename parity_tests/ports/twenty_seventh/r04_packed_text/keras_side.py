import keras
import numpy as np
from keras import layers, ops


class Reader(keras.Model):
    def __init__(self, vocab=30, dim=9, units=7, **kw):
        super().__init__(**kw)
        self.table = layers.Embedding(vocab, dim, mask_zero=True, embeddings_initializer="random_normal")
        self.rnn1 = layers.Bidirectional(layers.GRU(units, return_sequences=True))
        self.rnn2 = layers.Bidirectional(layers.GRU(units, return_sequences=True, return_state=True))
        self.proj = layers.Dense(6, activation="tanh")
        self.score = layers.Dense(1, use_bias=False)
        self.out = layers.Dense(1)

    def call(self, ids, training=None):
        mask = self.table.compute_mask(ids)
        h = self.table(ids)
        h = self.rnn1(h, mask=mask)
        h, fwd, bwd = self.rnn2(h, mask=mask)
        s = ops.squeeze(self.score(self.proj(h)), -1)
        s = ops.where(mask, s, ops.full_like(s, -1e9))
        w = ops.expand_dims(ops.softmax(s, axis=-1), -1)
        pooled = ops.sum(w * h, axis=1)
        return self.out(ops.concatenate([pooled, fwd, bwd], axis=-1))


def build():
    m = Reader()
    m(np.array([[1, 2, 3, 0] + [0] * 10], "int32"))
    return m
