"""BiDAF: where in a passage a question is answered. Ids of words, 0 pads at the end."""

import keras
from keras import layers, ops

VOCABULARY, PASSAGE, QUESTION, DIM, UNITS = 80, 20, 7, 16, 8


class AttentionFlow(layers.Layer):
    def build(self, c_shape, q_shape, c_ids_shape, q_ids_shape):
        d = c_shape[-1]
        self.w_c = self.add_weight(shape=(d, 1), initializer="glorot_uniform", name="w_c")
        self.w_q = self.add_weight(shape=(d, 1), initializer="glorot_uniform", name="w_q")
        self.w_cq = self.add_weight(shape=(1, 1, d), initializer="glorot_uniform", name="w_cq")

    def call(self, c, q, c_ids, q_ids):
        s = ops.matmul(c, self.w_c) + ops.transpose(ops.matmul(q, self.w_q), (0, 2, 1))
        s = s + ops.matmul(c * self.w_cq, ops.transpose(q, (0, 2, 1)))
        no_q = ops.cast(ops.expand_dims(q_ids == 0, 1), s.dtype)
        no_c = ops.cast(c_ids == 0, s.dtype)
        s = s - 1e9 * no_q
        to_question = ops.matmul(ops.softmax(s, axis=-1), q)
        b = ops.softmax(ops.max(s, axis=-1) - 1e9 * no_c, axis=-1)
        to_context = ops.expand_dims(ops.sum(ops.expand_dims(b, -1) * c, axis=1), 1)
        return ops.concatenate([c, to_question, c * to_question, c * to_context], axis=-1)


class MaskLogits(layers.Layer):
    def call(self, logits, ids):
        return ops.squeeze(logits, -1) - 1e9 * ops.cast(ids == 0, logits.dtype)


def span_loss(y, logits):
    """Sum of the cross entropies of start and end; logits of shape (batch, 2, PASSAGE)."""
    xent = keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True)
    return ops.sum(xent, axis=-1)


def build():
    context = keras.Input((PASSAGE,), dtype="int32", name="context")
    question = keras.Input((QUESTION,), dtype="int32", name="question")
    c_mask = layers.Lambda(lambda i: i > 0, output_shape=(PASSAGE,), name="c_mask")(context)
    q_mask = layers.Lambda(lambda i: i > 0, output_shape=(QUESTION,), name="q_mask")(question)
    words = layers.Embedding(VOCABULARY, DIM, name="words")
    drop = layers.Dropout(0.2)
    encoder = layers.Bidirectional(layers.GRU(UNITS, return_sequences=True), name="encoder")
    c = encoder(drop(words(context)), mask=c_mask)
    q = encoder(drop(words(question)), mask=q_mask)
    g = AttentionFlow()(c, q, context, question)
    modeling = layers.Bidirectional(layers.GRU(UNITS, return_sequences=True), name="modeling")
    m = modeling(drop(g), mask=c_mask)
    final = layers.Bidirectional(layers.GRU(UNITS, return_sequences=True), name="final")
    m2 = final(drop(m), mask=c_mask)
    start = layers.Dense(1, name="start")(layers.Concatenate()([g, m]))
    end = layers.Dense(1, name="end")(layers.Concatenate()([g, m2]))
    start, end = MaskLogits()(start, context), MaskLogits()(end, context)
    out = layers.Lambda(lambda t: ops.stack(t, axis=1), output_shape=(2, PASSAGE))([start, end])
    model = keras.Model([context, question], out)
    model.compile(keras.optimizers.Adadelta(0.5), loss=span_loss)
    return model
