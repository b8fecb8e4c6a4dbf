import keras
import tensorflow as tf
from keras import layers, ops

N_FIELDS, VOCAB, ROWS, STEPS = 9, 48, 8, 12
DIM = 24


class ContentSelection(layers.Layer):
    """r -> r * gate(r, what the other records say)."""

    def build(self, shape):
        self.bilinear = self.add_weight(
            shape=(shape[-1], shape[-1]), initializer="glorot_uniform", name="bilinear"
        )
        self.gate = layers.Dense(shape[-1], activation="sigmoid", name="gate")
        self.gate.build((None, None, 2 * shape[-1]))

    def call(self, r, present):
        s = tf.einsum("bid,de,bje->bij", r, self.bilinear, r)
        bias = (1.0 - tf.cast(present, s.dtype))[:, None, :] * -1e9
        ctx = tf.matmul(tf.nn.softmax(s + bias), r)
        return r * self.gate(tf.concat([r, ctx], -1))


class PointerGenerator(layers.Layer):
    def __init__(self, vocab, dim, **kw):
        super().__init__(**kw)
        self.vocab = vocab
        self.query = layers.Dense(dim, use_bias=False, name="query")
        self.mix = layers.Dense(dim, activation="tanh", name="mix")
        self.words = layers.Dense(vocab, name="words")
        self.switch = layers.Dense(1, activation="sigmoid", name="switch")

    def build(self, records_shape, states_shape, embedded_shape, value_shape):
        d, e, r = states_shape[-1], embedded_shape[-1], records_shape[-1]
        self.query.build((None, None, d))
        self.mix.build((None, None, d + r))
        self.words.build((None, None, d))
        self.switch.build((None, None, d + r + e))

    def call(self, records, states, embedded, value):
        scores = tf.matmul(self.query(states), records, transpose_b=True)
        scores = tf.where(tf.equal(value, 0)[:, None, :], tf.constant(-1e9, scores.dtype), scores)
        attention = tf.nn.softmax(scores, -1)
        context = tf.matmul(attention, records)
        p_words = tf.nn.softmax(self.words(self.mix(tf.concat([states, context], -1))), -1)
        p_gen = self.switch(tf.concat([states, context, embedded], -1))
        p_copy = tf.matmul(attention, tf.one_hot(value, self.vocab, dtype=attention.dtype))
        return tf.math.log(p_gen * p_words + (1.0 - p_gen) * p_copy + 1e-5)


def build():
    field = keras.Input((ROWS,), dtype="int32", name="field")
    value = keras.Input((ROWS,), dtype="int32", name="value")
    prev = keras.Input((STEPS,), dtype="int32", name="prev")

    tokens = layers.Embedding(VOCAB, 16, name="tokens")
    f = layers.Embedding(N_FIELDS, 8, name="fields")(field)
    r = layers.Dense(DIM, activation="tanh", name="record")(layers.Concatenate()([f, tokens(value)]))
    present = ops.not_equal(value, 0)
    r = ContentSelection(name="selection")(r, present)

    w = ops.expand_dims(ops.cast(present, "float32"), -1)
    summary = ops.sum(r * w, axis=1) / ops.sum(w, axis=1)
    h0 = layers.Dense(DIM, activation="tanh", name="bridge_h")(summary)
    c0 = layers.Dense(DIM, name="bridge_c")(summary)

    e = tokens(prev)
    states = layers.LSTM(DIM, return_sequences=True, name="decoder")(e, initial_state=[h0, c0])
    states = layers.LayerNormalization(name="ln")(states)
    logp = PointerGenerator(VOCAB, DIM, name="pointer")(r, states, e, value)
    return keras.Model({"field": field, "value": value, "prev": prev}, logp, name="table2text")


def nll(y, logp):
    y = tf.cast(y, tf.int32)
    picked = tf.gather(logp, y, batch_dims=2)
    m = tf.cast(tf.not_equal(y, 0), logp.dtype)
    return -tf.reduce_sum(picked * m, -1) / tf.reduce_sum(m, -1)
