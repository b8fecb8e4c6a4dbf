"""A pointer-generator network with coverage (See, Liu, Manning): summaries that copy unknown words."""

import keras
import tensorflow as tf
from keras import layers

VOCABULARY, EXTRA, UNITS = 30, 5, 20


class Attention(layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.of_state = layers.Dense(units, use_bias=False, name="of_state")
        self.of_text = layers.Dense(units, name="of_text")
        self.of_coverage = layers.Dense(units, use_bias=False, name="of_coverage")
        self.score = layers.Dense(1, use_bias=False, name="score")

    def call(self, state, text, coverage, mask):
        x = self.of_state(state)[:, None] + self.of_text(text) + self.of_coverage(coverage[..., None])
        scores = self.score(tf.tanh(x))[..., 0]
        return tf.nn.softmax(tf.where(mask, scores, tf.cast(-1e9, scores.dtype)))


class Summariser(keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding = layers.Embedding(VOCABULARY, 16, mask_zero=True, name="embedding")
        self.encoder = layers.GRU(UNITS, return_sequences=True, return_state=True, name="encoder")
        self.decoder = layers.GRUCell(UNITS, name="decoder")
        self.attention = Attention(16, name="attention")
        self.generator = layers.Dense(VOCABULARY, activation="softmax", name="generator")
        self.switch = layers.Dense(1, activation="sigmoid", name="switch")

    def call(self, inputs):
        source, copied, begin = inputs["source"], inputs["source_ext"], inputs["begin"]
        mask = self.embedding.compute_mask(source)
        text, state = self.encoder(self.embedding(source), mask=mask)
        steps = self.embedding(begin)
        places = tf.one_hot(copied, VOCABULARY + EXTRA, dtype=text.dtype)
        coverage = tf.zeros_like(text[..., 0])
        words, repeated = [], []
        for t in range(begin.shape[1]):
            state, _ = self.decoder(steps[:, t], [state])
            attention = self.attention(state, text, coverage, mask)
            repeated.append(tf.reduce_sum(tf.minimum(attention, coverage), axis=-1))
            coverage = coverage + attention
            context = tf.einsum("bs,bsd->bd", attention, text)
            features = tf.concat([state, context], axis=-1)
            new = self.switch(tf.concat([features, steps[:, t]], axis=-1))
            generated = tf.pad(new * self.generator(features), [[0, 0], [0, EXTRA]])
            words.append(generated + (1 - new) * tf.einsum("bs,bsv->bv", attention, places))
        return {"words": tf.stack(words, axis=1), "coverage": tf.stack(repeated, axis=1)}


def build():
    return Summariser()


def loss(targets, outputs):
    """Of each summary: the mean over its words of their surprise and of what is attended to again."""
    words = tf.cast(targets["words"], tf.int32)
    mask = targets["coverage"]
    probability = tf.gather(outputs["words"], words, batch_dims=2)
    each = -tf.math.log(probability + 1e-10) + outputs["coverage"]
    return tf.reduce_sum(mask * each, axis=1) / tf.reduce_sum(mask, axis=1)
