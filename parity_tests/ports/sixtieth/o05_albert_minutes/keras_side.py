"""ALBERT on minutes of council meetings: masked words and the order of two passages."""

import keras
from keras import layers, ops

VOCAB, LENGTH = 60, 20
EMBED, HIDDEN, HEADS, INNER = 12, 32, 2, 64
DEPTH, GROUPS = 4, 2


def gelu(x):
    return keras.activations.gelu(x, approximate=True)


def norm(name):
    return layers.LayerNormalization(epsilon=1e-12, name=name)


class AlbertLayer(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.attention = layers.MultiHeadAttention(HEADS, HIDDEN // HEADS, name="attention")
        self.attention_norm = norm("attention_norm")
        self.ffn = layers.Dense(INNER, activation=gelu, name="ffn")
        self.ffn_output = layers.Dense(HIDDEN, name="ffn_output")
        self.full_norm = norm("full_norm")

    def build(self, shape):
        self.attention.build(shape, shape)
        self.attention_norm.build(shape)
        self.ffn.build(shape)
        self.ffn_output.build((*shape[:-1], INNER))
        self.full_norm.build(shape)

    def call(self, x, attend):
        x = self.attention_norm(x + self.attention(x, x, attention_mask=attend))
        return self.full_norm(x + self.ffn_output(self.ffn(x)))


class Albert(keras.Model):
    def __init__(self):
        super().__init__(name="albert")
        self.word = layers.Embedding(VOCAB, EMBED, name="word")
        self.position = layers.Embedding(LENGTH, EMBED, name="position")
        self.segment = layers.Embedding(2, EMBED, name="segment")
        self.embed_norm = norm("embed_norm")
        self.embed_project = layers.Dense(HIDDEN, name="embed_project")
        self.groups = [AlbertLayer(name=f"group_{g}") for g in range(GROUPS)]
        self.pooler = layers.Dense(HIDDEN, activation="tanh", name="pooler")
        self.order = layers.Dense(2, name="order")
        self.mlm_dense = layers.Dense(EMBED, activation=gelu, name="mlm_dense")
        self.mlm_norm = norm("mlm_norm")

    def build(self, input_shape=None):
        self.mlm_bias = self.add_weight(shape=(VOCAB,), initializer="zeros", name="mlm_bias")

    def call(self, inputs):
        tokens, segments = inputs["tokens"], inputs["segments"]
        x = self.word(tokens) + self.segment(segments) + self.position(ops.arange(LENGTH))
        x = self.embed_project(self.embed_norm(x))
        attend = ops.not_equal(tokens, 0)[:, None, :]
        for i in range(DEPTH):
            x = self.groups[i * GROUPS // DEPTH](x, attend)
        h = self.mlm_norm(self.mlm_dense(x))
        words = ops.matmul(h, ops.transpose(self.word.embeddings)) + self.mlm_bias
        return {"mlm": words, "order": self.order(self.pooler(x[:, 0]))}


def mlm_loss(targets, outputs):
    """Mean over the masked words of each sample; targets are -1 elsewhere."""
    chosen = ops.cast(ops.greater_equal(targets, 0), outputs.dtype)
    labels = ops.cast(ops.maximum(targets, 0), "int32")
    each = keras.losses.sparse_categorical_crossentropy(labels, outputs, from_logits=True)
    return ops.sum(each * chosen, axis=1) / ops.sum(chosen, axis=1)


def build():
    model = Albert()
    zeros = ops.zeros((1, LENGTH), "int32")
    model({"tokens": zeros, "segments": zeros})
    return model
