import keras
from keras import layers, ops

NEG = -1e4


class AdditiveAttention(layers.Layer):
    def __init__(self, dim, **kw):
        super().__init__(**kw)
        self.dim = dim

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], self.dim), initializer="glorot_uniform", name="w")
        self.b = self.add_weight(shape=(self.dim,), initializer="zeros", name="b")
        self.q = self.add_weight(shape=(self.dim, 1), initializer="glorot_uniform", name="q")

    def call(self, x, present):
        e = ops.matmul(ops.tanh(ops.matmul(x, self.w) + self.b), self.q)[..., 0]
        a = ops.softmax(ops.where(present, e, NEG), axis=-1)
        return ops.einsum("...t,...td->...d", a, x)


class TitleEncoder(layers.Layer):
    def __init__(self, vocab=120, **kw):
        super().__init__(**kw)
        self.emb = layers.Embedding(vocab, 24, name="emb")
        self.conv = layers.Conv1D(32, 3, padding="same", activation="relu", name="conv")
        self.pool = AdditiveAttention(16, name="word_attention")

    def call(self, ids):  # (n, titles, words)
        n, t = ops.shape(ids)[0], ids.shape[1]
        flat = ops.reshape(ids, (-1, ids.shape[2]))
        present = ops.not_equal(flat, 0)
        v = self.pool(self.conv(self.emb(flat)), present)
        return ops.reshape(v, (n, t, 32))


def build():
    clicked = keras.Input((6, 8), dtype="int32", name="clicked")
    candidates = keras.Input((5, 8), dtype="int32", name="candidates")
    enc = TitleEncoder(name="title")
    history, items = enc(clicked), enc(candidates)
    read = ops.any(ops.not_equal(clicked, 0), axis=-1)
    ctx = layers.MultiHeadAttention(4, 8, name="self_attention")(
        history, history, attention_mask=read[:, None, :]
    )
    history = layers.LayerNormalization(epsilon=1e-5, name="norm")(history + ctx)
    user = AdditiveAttention(16, name="news_attention")(history, read)
    user = layers.Dense(32, name="user")(user)
    score = layers.Dot(axes=(2, 1))([items, user])
    return keras.Model({"clicked": clicked, "candidates": candidates}, score / 32**0.5)
