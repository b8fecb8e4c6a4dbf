"""Relations between two marked entities of a sentence (supplier notices).

Piecewise convolutional network, Zeng et al., EMNLP 2015.
"""

import keras
import numpy as np
import tensorflow as tf

WORDS = 220  # 0 is padding
MAX_DISTANCE = 12
RELATIONS = 6


class PiecewiseMaxPooling(keras.layers.Layer):
    """Largest activation in front of, between and behind the two entities."""

    def call(self, features, first, second, valid):
        positions = tf.range(tf.shape(features)[1])[tf.newaxis, :]
        first, second = first[:, tf.newaxis], second[:, tf.newaxis]
        pieces = tf.stack(
            [
                positions <= first,
                tf.logical_and(positions > first, positions <= second),
                tf.logical_and(positions > second, valid),
            ],
            axis=1,
        )  # (B, 3, T)
        mask = pieces[..., tf.newaxis]
        lowest = tf.reduce_min(features) - 1.0
        pooled = tf.reduce_max(tf.where(mask, features[:, tf.newaxis], lowest), axis=2)
        filled = tf.reduce_any(pieces, axis=2)[..., tf.newaxis]
        return tf.where(filled, pooled, tf.zeros_like(pooled))  # (B, 3, F)


class PCNN(keras.Model):
    def __init__(self, filters=24, **kwargs):
        super().__init__(**kwargs)
        self.words = keras.layers.Embedding(WORDS, 20, name="words")
        self.to_head = keras.layers.Embedding(2 * MAX_DISTANCE + 1, 4, name="to_head")
        self.to_tail = keras.layers.Embedding(2 * MAX_DISTANCE + 1, 4, name="to_tail")
        self.conv = keras.layers.Conv1D(filters, 3, padding="same", name="conv")
        self.pool = PiecewiseMaxPooling(name="pieces")
        self.relation = keras.layers.Dense(RELATIONS, name="relation")

    def distances(self, anchor, steps):
        offset = tf.range(steps)[tf.newaxis, :] - anchor[:, tf.newaxis]
        return tf.clip_by_value(offset, -MAX_DISTANCE, MAX_DISTANCE) + MAX_DISTANCE

    def call(self, inputs):
        tokens = tf.cast(inputs["tokens"], tf.int32)
        head = tf.cast(inputs["head"], tf.int32)
        tail = tf.cast(inputs["tail"], tf.int32)
        steps = tf.shape(tokens)[1]
        valid = tf.not_equal(tokens, 0)

        x = tf.concat(
            [
                self.words(tokens),
                self.to_head(self.distances(head, steps)),
                self.to_tail(self.distances(tail, steps)),
            ],
            axis=-1,
        )
        x = x * tf.cast(valid, x.dtype)[..., tf.newaxis]
        x = self.conv(x)
        pooled = self.pool(x, tf.minimum(head, tail), tf.maximum(head, tail), valid)
        sentence = tf.reshape(tf.tanh(pooled), [-1, 3 * x.shape[-1]])
        return self.relation(sentence)


def build():
    model = PCNN()
    model(
        {
            "tokens": np.ones((1, 22), np.int32),
            "head": np.array([2], np.int32),
            "tail": np.array([7], np.int32),
        }
    )
    return model
