"""FNet: token mixing by Fourier transforms, for topics of short messages."""

import keras
from keras import layers, ops


class FourierMixing(layers.Layer):
    def call(self, x):
        real, _ = ops.fft2((x, ops.zeros_like(x)))
        return real


class WordsAndPlaces(layers.Layer):
    def __init__(self, vocabulary, length, dim, **kwargs):
        super().__init__(**kwargs)
        self.words = layers.Embedding(vocabulary, dim, name="words")
        self.places = layers.Embedding(length, dim, name="places")

    def build(self, shape):
        self.words.build(shape)
        self.places.build(shape[-1:])

    def call(self, tokens):
        return self.words(tokens) + self.places(ops.arange(tokens.shape[1]))


class EncoderBlock(layers.Layer):
    def __init__(self, dim, hidden, rate, **kwargs):
        super().__init__(**kwargs)
        self.mixing = FourierMixing(name="mixing")
        self.norm_1 = layers.LayerNormalization(name="norm_1")
        self.norm_2 = layers.LayerNormalization(name="norm_2")
        self.up = layers.Dense(hidden, activation="gelu", name="up")
        self.down = layers.Dense(dim, name="down")
        self.dropout = layers.Dropout(rate, name="drop")

    def build(self, shape):
        self.norm_1.build(shape)
        self.norm_2.build(shape)
        self.up.build(shape)
        self.down.build((*shape[:-1], self.up.units))

    def call(self, x, training=None):
        x = self.norm_1(x + self.mixing(x))
        y = self.dropout(self.down(self.up(x)), training=training)
        return self.norm_2(x + y)


def build(vocabulary=60, length=20, dim=32, classes=4):
    tokens = keras.Input((length,), dtype="int32", name="tokens")
    x = WordsAndPlaces(vocabulary, length, dim, name="embedding")(tokens)
    x = layers.LayerNormalization(name="embedding_norm")(x)
    for i in range(2):
        x = EncoderBlock(dim, 64, 0.1, name=f"encoder_{i}")(x)
    pooled = layers.Dense(dim, activation="tanh", name="pooler")(x[:, 0])
    return keras.Model(tokens, layers.Dense(classes, name="classifier")(pooled))
