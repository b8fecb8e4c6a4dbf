import keras
from keras import layers, ops


class CausalSelfAttention(layers.Layer):
    def __init__(self, dim, heads, **kwargs):
        super().__init__(**kwargs)
        self.dim, self.heads = dim, heads
        self.query = layers.Dense(dim, name="query")
        self.key = layers.Dense(dim, name="key")
        self.value = layers.Dense(dim, name="value")
        self.proj = layers.Dense(dim, name="proj")

    def split(self, x):
        x = ops.reshape(x, (-1, x.shape[1], self.heads, self.dim // self.heads))
        return ops.transpose(x, (0, 2, 1, 3))

    def call(self, x):
        n = x.shape[1]
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) / (self.dim // self.heads) ** 0.5
        mask = ops.tril(ops.ones((n, n), dtype="bool"))
        scores = ops.where(mask, scores, -1e9)
        y = ops.transpose(ops.matmul(ops.softmax(scores), v), (0, 2, 1, 3))
        return self.proj(ops.reshape(y, (-1, n, self.dim)))


class Block(layers.Layer):
    def __init__(self, dim, heads, **kwargs):
        super().__init__(**kwargs)
        self.ln1 = layers.LayerNormalization(epsilon=1e-8, name="ln1")
        self.attn = CausalSelfAttention(dim, heads, name="attn")
        self.ln2 = layers.LayerNormalization(epsilon=1e-8, name="ln2")
        self.fc1 = layers.Dense(dim * 2, activation="relu", name="fc1")
        self.fc2 = layers.Dense(dim, name="fc2")

    def call(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.fc2(self.fc1(self.ln2(x)))


class SASRec(keras.Model):
    def __init__(self, items=50, length=10, dim=16, heads=4, depth=2, **kwargs):
        super().__init__(**kwargs)
        self.length = length
        self.item_emb = layers.Embedding(items, dim, name="item_emb")
        self.pos_emb = layers.Embedding(length, dim, name="pos_emb")
        self.blocks = [Block(dim, heads, name=f"block{i}") for i in range(depth)]
        self.norm = layers.LayerNormalization(epsilon=1e-8, name="norm")
        self.out = layers.Dense(items, use_bias=False, name="out")

    def call(self, history):
        x = self.item_emb(history) + self.pos_emb(ops.arange(self.length))
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x))


def build():
    history = keras.Input((10,), dtype="int32", name="history")
    return keras.Model(history, SASRec(name="sasrec")(history))
