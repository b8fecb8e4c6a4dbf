"""Letters to phonemes: bidirectional GRU encoder, additive attention, GRU decoder with teacher forcing."""

import keras
import tensorflow as tf
from keras import layers

LETTERS, PHONES = 29, 34
SRC, TGT = 12, 9
UNITS = 20


class AdditiveAttention(layers.Layer):
    def __init__(self, units, **kw):
        super().__init__(**kw)
        self.w_state = layers.Dense(units, use_bias=False, name="w_state")
        self.w_memory = layers.Dense(units, name="w_memory")
        self.v = layers.Dense(1, use_bias=False, name="v")

    def build(self, state_shape, memory_shape=None):
        self.built = True

    def call(self, state, memory, keys, valid):
        e = self.v(tf.tanh(self.w_state(state)[:, None, :] + keys))[..., 0]
        e = tf.where(valid, e, tf.constant(-1e9, dtype=e.dtype))
        a = tf.nn.softmax(e, axis=1)
        return tf.einsum("bs,bsd->bd", a, memory)


class Decoder(layers.Layer):
    def __init__(self, units, phones, **kw):
        super().__init__(**kw)
        self.embedding = layers.Embedding(phones, 12, name="phone_embedding")
        self.cell = layers.GRUCell(units, name="cell")
        self.attention = AdditiveAttention(16, name="attention")
        self.readout = layers.Dense(24, activation="tanh", name="readout")
        self.logits = layers.Dense(phones, name="logits")

    def call(self, letters, phones_in, memory, state):
        valid = tf.not_equal(letters, 0)
        emb = self.embedding(phones_in)
        keys = self.attention.w_memory(memory)
        outputs = []
        for t in range(phones_in.shape[1]):
            context = self.attention(state, memory, keys, valid)
            x = tf.concat([emb[:, t], context], axis=-1)
            out, new = self.cell(x, [state])
            state = new[0] if isinstance(new, (list, tuple)) else new
            outputs.append(self.logits(self.readout(tf.concat([out, context, emb[:, t]], axis=-1))))
        return tf.stack(outputs, axis=1)

    def compute_output_shape(self, letters_shape, phones_in_shape, *_):
        return tuple(phones_in_shape) + (PHONES,)

    def compute_mask(self, *args, **kw):
        return None


def build():
    letters = keras.Input((SRC,), dtype="int32", name="letters")
    phones_in = keras.Input((TGT,), dtype="int32", name="phones_in")
    x = layers.Embedding(LETTERS, 12, mask_zero=True, name="letter_embedding")(letters)
    memory, fw, bw = layers.Bidirectional(
        layers.GRU(UNITS, return_sequences=True, return_state=True), name="encoder"
    )(x)
    state = layers.Dense(UNITS, activation="tanh", name="bridge")(layers.Concatenate()([fw, bw]))
    out = Decoder(UNITS, PHONES, name="decoder")(letters, phones_in, memory, state)
    return keras.Model([letters, phones_in], out, name="g2p")


def loss(y_true, logits):
    y_true = tf.cast(y_true, tf.int32)
    ce = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y_true, logits=logits)
    keep = tf.cast(y_true > 0, logits.dtype)
    return tf.reduce_sum(ce * keep) / tf.reduce_sum(keep)
