"""Where in a passage the answer to a question stands (BiDAF). Token 0 is padding."""

import keras
from keras import layers, ops


class Attention(layers.Layer):
    """From the passage to the question, and from the question to the passage."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.similarity = layers.Dense(1, use_bias=False, name="similarity")

    def build(self, h_shape, u_shape, keep_h_shape=None, keep_u_shape=None):
        self.similarity.build((None, 3 * h_shape[-1]))

    def compute_output_shape(self, h_shape, u_shape, keep_h_shape=None, keep_u_shape=None):
        return (*h_shape[:-1], 4 * h_shape[-1])

    def call(self, h, u, keep_h, keep_u):
        rows, columns = h.shape[1], u.shape[1]
        left = ops.repeat(h[:, :, None], columns, axis=2)
        right = ops.repeat(u[:, None], rows, axis=1)
        s = self.similarity(ops.concatenate([left, right, left * right], axis=-1))[..., 0]
        s = ops.where(keep_u[:, None], s, -1e9)
        to_question = ops.matmul(ops.softmax(s, axis=2), u)
        best = ops.where(keep_h, ops.max(s, axis=2), -1e9)
        to_passage = ops.sum(ops.softmax(best, axis=1)[..., None] * h, axis=1, keepdims=True)
        return ops.concatenate([h, to_question, h * to_question, h * to_passage], axis=-1)


def build():
    passage = keras.Input((14,), dtype="int32", name="passage")
    question = keras.Input((6,), dtype="int32", name="question")
    keep_p, keep_q = ops.not_equal(passage, 0), ops.not_equal(question, 0)
    embedding = layers.Embedding(40, 7, name="embedding")
    encoder = layers.Bidirectional(layers.GRU(5, return_sequences=True), name="encoder")
    h = encoder(embedding(passage), mask=keep_p)
    u = encoder(embedding(question), mask=keep_q)
    g = Attention(name="attention")(h, u, keep_p, keep_q)
    m = layers.Bidirectional(layers.GRU(5, return_sequences=True), name="modelling")(g, mask=keep_p)
    gm = ops.concatenate([g, m], axis=-1)
    start = ops.where(keep_p, layers.Dense(1, name="start")(gm)[..., 0], -1e9)
    begin = ops.sum(ops.softmax(start, axis=1)[..., None] * m, axis=1, keepdims=True)
    both = ops.concatenate([gm, m * begin], axis=-1)
    end = ops.where(keep_p, layers.Dense(1, name="end")(both)[..., 0], -1e9)
    return keras.Model([passage, question], {"start": start, "end": end})
