"""Transformer-XL (Dai et al.): a text is read in segments, each with a memory of the one before."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

WIDTH, HEADS, SEGMENT, MEMORY = 24, 3, 4, 6


def distances(length, dtype):
    """Sines and cosines of the distances length - 1, ..., 0."""
    rates = 1 / 10000 ** (np.arange(0, WIDTH, 2) / WIDTH)
    angles = np.arange(length - 1, -1, -1)[:, None] * rates
    return tf.constant(np.concatenate([np.sin(angles), np.cos(angles)], axis=-1), dtype)


class RelativeAttention(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.query = layers.Dense(WIDTH, use_bias=False, name="query")
        self.key = layers.Dense(WIDTH, use_bias=False, name="key")
        self.value = layers.Dense(WIDTH, use_bias=False, name="value")
        self.position = layers.Dense(WIDTH, use_bias=False, name="position")
        self.out = layers.Dense(WIDTH, use_bias=False, name="out")
        small = keras.initializers.RandomNormal(stddev=0.2, seed=9)
        shape = (HEADS, WIDTH // HEADS)
        self.content_bias = self.add_weight(shape=shape, initializer=small.clone(), name="content_bias")
        self.position_bias = self.add_weight(shape=shape, initializer=small.clone(), name="position_bias")

    def heads(self, x):
        return tf.reshape(x, (*tf.unstack(tf.shape(x))[:-1], HEADS, WIDTH // HEADS))

    def call(self, x, context):
        here, seen = x.shape[1], context.shape[1]
        q, k, v = self.heads(self.query(x)), self.heads(self.key(context)), self.heads(self.value(context))
        r = self.heads(self.position(distances(seen, x.dtype)))
        by_content = tf.einsum("bihd,bjhd->bhij", q + self.content_bias, k)
        by_position = tf.einsum("bihd,jhd->bhij", q + self.position_bias, r)
        # Row i is moved to the left by here - 1 - i, so that column j has the distance of i and j.
        by_position = tf.pad(by_position, [[0, 0], [0, 0], [0, 0], [1, 0]])
        by_position = tf.reshape(by_position, (-1, HEADS, seen + 1, here))[:, :, 1:]
        by_position = tf.reshape(by_position, (-1, HEADS, here, seen))
        scores = (by_content + by_position) / tf.sqrt(tf.cast(WIDTH // HEADS, x.dtype))
        later = tf.range(seen)[None, :] > tf.range(here)[:, None] + (seen - here)
        weights = tf.nn.softmax(tf.where(later, tf.cast(-1e9, x.dtype), scores))
        y = tf.einsum("bhij,bjhd->bihd", weights, v)
        return self.out(tf.reshape(y, (-1, here, WIDTH)))


class Layer(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.attention = RelativeAttention(name="attention")
        self.norm1 = layers.LayerNormalization(epsilon=1e-5, name="norm1")
        self.wide = layers.Dense(48, activation="relu", name="wide")
        self.narrow = layers.Dense(WIDTH, name="narrow")
        self.norm2 = layers.LayerNormalization(epsilon=1e-5, name="norm2")
        self.dropout1 = layers.Dropout(0.1)
        self.dropout2 = layers.Dropout(0.1)

    def call(self, x, memory, training=False):
        context = x if memory is None else tf.concat([memory, x], axis=1)
        x = self.norm1(x + self.dropout1(self.attention(x, context), training=training))
        return self.norm2(x + self.dropout2(self.narrow(self.wide(x)), training=training))


class TransformerXL(keras.Model):
    def __init__(self, vocabulary=24, depth=2):
        super().__init__()
        self.embedding = layers.Embedding(vocabulary, WIDTH, name="embedding")
        self.layers_ = [Layer(name=f"layer{i}") for i in range(depth)]
        self.out = layers.Dense(vocabulary, name="out")

    def call(self, tokens, training=False):
        memories = [None] * len(self.layers_)
        outputs = []
        for start in range(0, tokens.shape[1], SEGMENT):
            x = self.embedding(tokens[:, start : start + SEGMENT])
            for i, layer in enumerate(self.layers_):
                known = x if memories[i] is None else tf.concat([memories[i], x], axis=1)
                x = layer(x, memories[i], training=training)
                memories[i] = tf.stop_gradient(known[:, -MEMORY:])
            outputs.append(x)
        return self.out(tf.concat(outputs, axis=1))


def build():
    return TransformerXL()
