"""A small BERT-like encoder with padding masks (subclassed Keras)."""

import keras
from keras import layers, ops


class EncoderBlock(layers.Layer):
    def __init__(self, dim, heads, hidden, **kw):
        super().__init__(**kw)
        self.attention = layers.MultiHeadAttention(heads, dim // heads, name="attention")
        self.norm1 = layers.LayerNormalization(name="norm1")
        self.fc1 = layers.Dense(hidden, activation="gelu", name="fc1")
        self.fc2 = layers.Dense(dim, name="fc2")
        self.norm2 = layers.LayerNormalization(name="norm2")

    def call(self, x, padding_mask):
        attended = self.attention(x, x, attention_mask=padding_mask[:, None, :])
        x = self.norm1(x + attended)
        return self.norm2(x + self.fc2(self.fc1(x)))


class Encoder(keras.Model):
    def __init__(self, vocabulary=120, length=20, dim=32, heads=4, hidden=64, depth=2, classes=4):
        super().__init__()
        self.tokens = layers.Embedding(vocabulary, dim, name="tokens")
        self.positions = layers.Embedding(length, dim, name="positions")
        self.blocks = [EncoderBlock(dim, heads, hidden, name=f"block{i}") for i in range(depth)]
        self.classifier = layers.Dense(classes, name="classifier")

    def call(self, ids):
        valid = ops.not_equal(ids, 0)
        x = self.tokens(ids) + self.positions(ops.arange(ops.shape(ids)[1]))
        for block in self.blocks:
            x = block(x, valid)
        weight = ops.cast(valid, x.dtype)[:, :, None]
        pooled = ops.sum(x * weight, axis=1) / ops.sum(weight, axis=1)
        return self.classifier(pooled)
