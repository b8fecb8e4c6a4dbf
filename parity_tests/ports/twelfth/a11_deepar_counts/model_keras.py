"""Sales of spare parts (DeepAR): a recurrent network gives a negative binomial distribution for each week.

The first 12 weeks are the context from which a series has its scale; -1 in the targets is a week without a record.
"""

import keras
import tensorflow as tf
from keras import layers, ops

WEEKS, CONTEXT, ITEMS = 18, 12, 10


def build():
    counts = keras.Input((WEEKS,), name="counts")
    item = keras.Input((), dtype="int32", name="item")
    scale = 1 + ops.mean(counts[:, :CONTEXT], axis=1, keepdims=True)
    before = ops.pad(counts[:, :-1], ((0, 0), (1, 0))) / scale
    kind = layers.Embedding(
        ITEMS, 4, embeddings_initializer=keras.initializers.RandomNormal(stddev=0.8), name="kind"
    )(item)
    x = ops.concatenate([before[..., None], ops.repeat(kind[:, None], WEEKS, axis=1)], axis=-1)
    hidden = layers.Dense(8, activation="tanh", name="hidden")(kind)
    cell = layers.Dense(8, name="cell")(kind)
    x = layers.LSTM(8, return_sequences=True, name="lstm")(x, initial_state=[hidden, cell])
    mean = ops.softplus(layers.Dense(1, name="rate")(x)) * scale[:, None]
    shape = ops.softplus(layers.Dense(1, name="shape")(x)) / ops.sqrt(scale[:, None])
    return keras.Model([counts, item], ops.concatenate([mean, shape], axis=-1))


def loss(y, output):
    mean, shape = output[..., 0], output[..., 1]
    seen = y >= 0
    k = ops.maximum(y, 0)
    r = 1 / shape
    value = tf.math.lgamma(k + r) - tf.math.lgamma(k + 1) - tf.math.lgamma(r)
    value = value - r * ops.log1p(shape * mean) + k * (ops.log(shape * mean) - ops.log1p(shape * mean))
    total = ops.sum(ops.where(seen, -value, 0.0), axis=1)
    return total / ops.sum(ops.cast(seen, total.dtype), axis=1)
