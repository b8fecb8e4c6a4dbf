import math

import keras
from keras import layers, ops


class Block(layers.Layer):
    def __init__(self, d, heads, ff, **kw):
        super().__init__(**kw)
        self.att = layers.MultiHeadAttention(heads, d // heads, name="att")
        self.n1 = layers.LayerNormalization(epsilon=1e-6, name="n1")
        self.n2 = layers.LayerNormalization(epsilon=1e-6, name="n2")
        self.up = layers.Dense(ff, activation="gelu", name="up")
        self.down = layers.Dense(d, name="down")

    def build(self, shape):
        self.att.build(shape, shape)
        self.n1.build(shape)
        self.n2.build(shape)
        self.up.build(shape)
        self.down.build((*shape[:-1], self.up.units))
        self.built = True

    def call(self, x, keep):
        x = self.n1(x + self.att(x, x, attention_mask=keep[:, None, :]))
        return self.n2(x + self.down(self.up(x)))


class Intent(keras.Model):
    def __init__(self, vocab=40, length=14, d=24, heads=4, ff=48, depth=2, classes=5):
        super().__init__(name="intent")
        self.d = d
        self.tok = layers.Embedding(vocab, d, name="tok")
        self.pos = layers.Embedding(length, d, name="pos")
        self.blocks = [Block(d, heads, ff, name=f"block{i}") for i in range(depth)]
        self.out = layers.Dense(classes, name="out")

    def call(self, x, training=None):
        keep = ops.not_equal(x, 0)
        h = self.tok(x) * math.sqrt(self.d) + self.pos(ops.arange(x.shape[1]))
        for b in self.blocks:
            h = b(h, keep)
        w = ops.cast(keep, h.dtype)[..., None]
        pooled = ops.sum(h * w, axis=1) / ops.sum(w, axis=1)
        return self.out(pooled)


def build():
    m = Intent()
    m(ops.ones((2, 14), dtype="int32"))
    return m
