"""Encoder-decoder transformer (post-norm) for a toy translation task; id 0 = padding, id 1 = <s>."""

import keras
import numpy as np
from keras import layers, ops

VOCAB, D, HEADS, FF, MAXLEN = 32, 24, 6, 48, 9


def sinusoids(length, dim):
    pos = np.arange(length)[:, None]
    i = np.arange(dim // 2)[None]
    ang = pos / np.power(10000.0, 2 * i / dim)
    out = np.zeros((length, dim))
    out[:, 0::2] = np.sin(ang)
    out[:, 1::2] = np.cos(ang)
    return out


class TokenAndPosition(layers.Layer):
    def __init__(self, **kw):
        super().__init__(**kw)
        self.tok = layers.Embedding(VOCAB, D)
        self.pe = sinusoids(MAXLEN, D)

    def call(self, ids):
        e = self.tok(ids) * np.sqrt(D)
        return e + ops.cast(self.pe, e.dtype)[: ids.shape[1]]


class FeedForward(layers.Layer):
    def __init__(self, **kw):
        super().__init__(**kw)
        self.d1 = layers.Dense(FF, activation="relu")
        self.d2 = layers.Dense(D)

    def call(self, x):
        return self.d2(self.d1(x))


class EncoderLayer(layers.Layer):
    def __init__(self, **kw):
        super().__init__(**kw)
        self.mha = layers.MultiHeadAttention(HEADS, D // HEADS)
        self.ffn = FeedForward()
        self.ln1 = layers.LayerNormalization(epsilon=1e-6)
        self.ln2 = layers.LayerNormalization(epsilon=1e-6)

    def call(self, x, pad):
        x = self.ln1(x + self.mha(x, x, attention_mask=pad))
        return self.ln2(x + self.ffn(x))


class DecoderLayer(layers.Layer):
    def __init__(self, **kw):
        super().__init__(**kw)
        self.self_mha = layers.MultiHeadAttention(HEADS, D // HEADS)
        self.cross_mha = layers.MultiHeadAttention(HEADS, D // HEADS)
        self.ffn = FeedForward()
        self.ln1 = layers.LayerNormalization(epsilon=1e-6)
        self.ln2 = layers.LayerNormalization(epsilon=1e-6)
        self.ln3 = layers.LayerNormalization(epsilon=1e-6)

    def call(self, y, memory, look_ahead, memory_mask):
        y = self.ln1(y + self.self_mha(y, y, attention_mask=look_ahead))
        y = self.ln2(y + self.cross_mha(y, memory, attention_mask=memory_mask))
        return self.ln3(y + self.ffn(y))


class Transformer(keras.Model):
    def __init__(self):
        super().__init__(name="nmt")
        self.src_embed = TokenAndPosition()
        self.tgt_embed = TokenAndPosition()
        self.encoder = EncoderLayer()
        self.decoder = DecoderLayer()
        self.project = layers.Dense(VOCAB)

    def call(self, inputs):
        src, tgt = inputs["src"], inputs["tgt"]
        src_mask = ops.not_equal(src, 0)[:, None, :]
        tgt_mask = ops.not_equal(tgt, 0)[:, None, :]
        causal = np.tril(np.ones((tgt.shape[1], tgt.shape[1]), dtype=bool))[None]
        memory = self.encoder(self.src_embed(src), pad=src_mask)
        y = self.decoder(
            self.tgt_embed(tgt), memory, look_ahead=ops.logical_and(tgt_mask, causal), memory_mask=src_mask
        )
        return self.project(y)


def build():
    model = Transformer()
    ids = np.ones((8, MAXLEN), dtype="int32")
    model({"src": ids, "tgt": ids})
    return model


def loss(y_true, y_pred):
    y_true = ops.cast(y_true, "int32")
    ce = ops.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
    w = ops.cast(ops.not_equal(y_true, 0), ce.dtype)
    return ops.sum(ce * w) / ops.sum(w)
