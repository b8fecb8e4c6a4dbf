"""Does the document answer the question? Word 0 is padding on both sides."""

from keras import Input, Model, layers, ops
from keras.initializers import RandomNormal


class MaskedMean(layers.Layer):
    def call(self, x, mask_from):
        keep = ops.cast(ops.expand_dims(ops.not_equal(mask_from, 0), -1), x.dtype)
        return ops.sum(x * keep, axis=1) / ops.sum(keep, axis=1)


class KeyMask(layers.Layer):
    def call(self, ids):
        return ops.not_equal(ids[:, None, :], 0)


def build(words=80, dim=32, heads=4):
    document = Input((14,), dtype="int32", name="document")
    question = Input((6,), dtype="int32", name="question")
    embed = layers.Embedding(words, dim, embeddings_initializer=RandomNormal(stddev=1.0), name="words")
    d, q = embed(document), embed(question)
    mask = KeyMask(name="document_mask")(document)
    a = layers.MultiHeadAttention(heads, dim // heads, name="cross_attention")(q, d, attention_mask=mask)
    x = layers.LayerNormalization(epsilon=1e-6, name="norm1")(layers.Add(name="add1")([q, a]))
    h = layers.Dense(64, activation="relu", name="ffn1")(x)
    h = layers.Dense(dim, name="ffn2")(h)
    x = layers.LayerNormalization(epsilon=1e-6, name="norm2")(layers.Add(name="add2")([x, h]))
    x = MaskedMean(name="pool")(x, question)
    return Model([document, question], layers.Dense(2, name="answers")(x))
