"""Next track of a playlist user: a transformer over the tracks of a session, one over the sessions."""

import keras
import numpy as np
import tensorflow as tf

N_TRACKS, SESSIONS, PER_SESSION, HOURS = 61, 4, 6, 8
D, HEADS = 16, 2
LOG_POPULARITY = (-0.6 * np.log(np.arange(1, N_TRACKS + 1))).astype("float32")
CAUSAL = np.tril(np.ones((SESSIONS, SESSIONS), dtype=bool))


class Block(keras.layers.Layer):
    """pre-norm"""

    def __init__(self, hidden, **kw):
        super().__init__(**kw)
        self.norm_1 = keras.layers.LayerNormalization(epsilon=1e-6)
        self.mha = keras.layers.MultiHeadAttention(HEADS, D // HEADS)
        self.norm_2 = keras.layers.LayerNormalization(epsilon=1e-6)
        self.wide = keras.layers.Dense(hidden, activation="gelu")
        self.narrow = keras.layers.Dense(D)

    def build(self, shape):
        shape = tuple(shape)
        self.norm_1.build(shape)
        self.mha.build(shape, shape)
        self.norm_2.build(shape)
        self.wide.build(shape)
        self.narrow.build(shape[:-1] + (self.wide.units,))

    def call(self, x, attention_mask=None):
        h = self.norm_1(x)
        x = x + self.mha(h, h, attention_mask=attention_mask)
        return x + self.narrow(self.wide(self.norm_2(x)))


class TwoLevel(keras.layers.Layer):
    def __init__(self, **kw):
        super().__init__(**kw)
        self.track = keras.layers.Embedding(N_TRACKS, D, name="track")
        self.hour = keras.layers.Embedding(HOURS, D, name="hour")
        self.item_block = Block(32, name="item_block")
        self.session_blocks = [Block(32, name=f"session_block_{i}") for i in range(2)]
        self.final_norm = keras.layers.LayerNormalization(epsilon=1e-6, name="final_norm")

    def build(self, tracks_shape, hours_shape):
        self.item_position = self.add_weight(
            shape=(PER_SESSION, D), initializer="random_normal", name="item_position"
        )
        self.session_position = self.add_weight(
            shape=(SESSIONS, D), initializer="random_normal", name="session_position"
        )
        self.track.build(tracks_shape)
        self.hour.build(hours_shape)
        self.item_block.build((None, PER_SESSION + 1, D))
        for b in self.session_blocks:
            b.build((None, SESSIONS, D))
        self.final_norm.build((None, D))

    def call(self, tracks, hours):
        # the head of each session is the token of its hour
        flat = tf.reshape(tracks, [-1, PER_SESSION])
        items = self.track(flat) * np.sqrt(D).astype("float32") + self.item_position
        head = tf.expand_dims(self.hour(tf.reshape(hours, [-1])), 1)
        seq = tf.concat([head, items], axis=1)
        present = tf.pad(tf.not_equal(flat, 0), [[0, 0], [1, 0]], constant_values=True)
        seq = self.item_block(seq, attention_mask=present[:, None, :])

        s = tf.reshape(seq[:, 0], [-1, SESSIONS, D]) + self.session_position
        active = tf.reduce_any(tf.not_equal(tracks, 0), axis=-1)
        mask = tf.logical_and(active[:, None, :], tf.constant(CAUSAL)[None])
        for b in self.session_blocks:
            s = b(s, attention_mask=mask)
        last = tf.reduce_sum(tf.cast(active, tf.int32), axis=-1) - 1
        user = self.final_norm(tf.gather(s, last, batch_dims=1))
        return tf.matmul(user, self.track.embeddings, transpose_b=True) + LOG_POPULARITY


def build():
    tracks = keras.Input((SESSIONS, PER_SESSION), dtype="int32", name="tracks")
    hours = keras.Input((SESSIONS,), dtype="int32", name="hours")
    return keras.Model({"tracks": tracks, "hours": hours}, TwoLevel(name="two_level")(tracks, hours))
