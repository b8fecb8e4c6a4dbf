import keras
import tensorflow as tf
from keras import layers

VOCAB, ACTS, MAX_UTTERANCES, MAX_WORDS = 70, 6, 6, 8
EMB, WORD_UNITS, UTT_UNITS, ATT = 16, 10, 12, 14
NEG = -1e9


class WordAttention(layers.Layer):
    """Yang et al. 2016"""

    def __init__(self, units, **kw):
        super().__init__(**kw)
        self.project = layers.Dense(units, activation="tanh", name="project")
        self.context = layers.Dense(1, use_bias=False, name="context")

    def build(self, shape):
        self.project.build(shape)
        self.context.build((*shape[:-1], self.project.units))

    def call(self, h, present):
        score = tf.squeeze(self.context(self.project(h)), -1)
        score = tf.where(present, score, tf.constant(NEG, score.dtype))
        return tf.einsum("nl,nld->nd", tf.nn.softmax(score), h)


class ActTagger(keras.Model):
    def __init__(self, **kw):
        super().__init__(**kw)
        self.words = layers.Embedding(
            VOCAB, EMB, embeddings_initializer=keras.initializers.RandomNormal(stddev=0.3), name="words"
        )
        self.word_gru = layers.Bidirectional(layers.GRU(WORD_UNITS, return_sequences=True), name="word_gru")
        self.attention = WordAttention(ATT, name="attention")
        self.who = layers.Embedding(
            2, 4, embeddings_initializer=keras.initializers.RandomNormal(stddev=0.3), name="who"
        )
        self.utterance_gru = layers.Bidirectional(
            layers.GRU(UTT_UNITS, return_sequences=True), name="utterance_gru"
        )
        self.hidden = layers.Dense(16, activation="selu", name="hidden")
        self.drop = layers.Dropout(0.1)
        self.tag = layers.Dense(ACTS, name="tag")

    def call(self, inputs, training=None):
        tokens, speaker = inputs["tokens"], inputs["speaker"]
        flat = tf.reshape(tokens, [-1, MAX_WORDS])
        present = tf.not_equal(flat, 0)
        h = self.word_gru(self.words(flat), mask=present)
        u = self.attention(h, present)
        u = tf.reshape(u, [-1, MAX_UTTERANCES, 2 * WORD_UNITS])

        turn = tf.not_equal(speaker[:, 1:], speaker[:, :-1])
        turn = tf.pad(turn, [[0, 0], [1, 0]], constant_values=True)
        u = tf.concat([u, self.who(speaker), tf.cast(turn, u.dtype)[..., None]], axis=-1)

        said = tf.reduce_any(tf.not_equal(tokens, 0), axis=-1)
        u = self.utterance_gru(u, mask=said)
        return self.tag(self.drop(self.hidden(u), training=training))


def build():
    tagger = ActTagger(name="tagger")
    tagger(
        {
            "tokens": tf.ones((2, MAX_UTTERANCES, MAX_WORDS), tf.int32),
            "speaker": tf.zeros((2, MAX_UTTERANCES), tf.int32),
        }
    )
    tokens = keras.Input((MAX_UTTERANCES, MAX_WORDS), dtype="int32", name="tokens")
    speaker = keras.Input((MAX_UTTERANCES,), dtype="int32", name="speaker")
    inputs = {"tokens": tokens, "speaker": speaker}
    return keras.Model(inputs, tagger(inputs), name="dialogue_acts")


def tag_loss(acts, logits):
    """mean over the utterances of a dialogue; acts of -1 are padding"""
    acts = tf.cast(acts, tf.int32)
    real = tf.cast(acts >= 0, logits.dtype)
    ce = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.maximum(acts, 0), logits=logits)
    return tf.reduce_sum(ce * real, -1) / tf.reduce_sum(real, -1)
