"""Next song of a listening session: one causal self-attention block (SASRec-like), output tied to the item table."""

import keras
from keras import layers, ops

ITEMS, LENGTH, DIM = 40, 12, 16


class SongTable(layers.Layer):
    """Item embeddings plus learned positions; `score` is the tied output."""

    def build(self, shape):
        self.items = self.add_weight(name="items", shape=(ITEMS, DIM), initializer="uniform")
        self.positions = self.add_weight(name="positions", shape=(LENGTH, DIM), initializer="uniform")

    def call(self, ids):
        return ops.take(self.items, ids, axis=0) * DIM**0.5 + self.positions

    def score(self, h):
        return ops.matmul(h, ops.transpose(self.items))


class NextSong(keras.Model):
    def __init__(self):
        super().__init__(name="next_song")
        self.table = SongTable(name="table")
        self.norm1 = layers.LayerNormalization(name="norm1")
        self.attention = layers.MultiHeadAttention(4, DIM // 4, use_bias=False, name="attention")
        self.norm2 = layers.LayerNormalization(name="norm2")
        self.wide = layers.Dense(32, activation="gelu", name="wide")
        self.narrow = layers.Dense(DIM, name="narrow")
        self.final_norm = layers.LayerNormalization(name="final_norm")

    def call(self, session):
        x = self.table(session)
        h = self.norm1(x)
        x = x + self.attention(h, h, use_causal_mask=True)
        x = x + self.narrow(self.wide(self.norm2(x)))
        return self.table.score(self.final_norm(x)[:, -1])


def build():
    model = NextSong()
    model(ops.zeros((1, LENGTH), dtype="int32"))
    return model
