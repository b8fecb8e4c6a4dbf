"""Two-tower retrieval, in-batch sampled softmax with logQ correction.

The output holds the user vector and the item vector side by side;
the target is the log popularity of the positive item.
"""

import keras
from keras import layers, ops

USERS, ITEMS, HIST, DIM = 60, 90, 10, 16
TEMPERATURE = 0.2


class MaskedMean(layers.Layer):
    def call(self, seq, ids):
        w = ops.cast(ops.not_equal(ids, 0), seq.dtype)
        total = ops.sum(seq * ops.expand_dims(w, -1), axis=1)
        return total / ops.maximum(ops.sum(w, axis=1, keepdims=True), 1.0)


def tower(x, name):
    x = layers.Dense(32, activation="relu", name=name + "_1")(x)
    x = layers.Dropout(0.1)(x)
    x = layers.Dense(DIM, name=name + "_2")(x)
    return layers.UnitNormalization(axis=-1)(x)


def build():
    user = keras.Input((), dtype="int64", name="user")
    hist = keras.Input((HIST,), dtype="int64", name="hist")
    item = keras.Input((), dtype="int64", name="item")
    item_table = layers.Embedding(ITEMS + 1, DIM, embeddings_initializer="normal", name="items")
    user_vec = layers.Embedding(USERS, DIM, embeddings_initializer="normal", name="users")(user)
    history = MaskedMean()(item_table(hist), hist)
    u = tower(layers.Concatenate()([user_vec, history]), "query")
    v = tower(item_table(item), "candidate")
    return keras.Model([user, hist, item], layers.Concatenate()([u, v]), name="two_tower")


def in_batch_softmax(y_true, y_pred):
    u, v = y_pred[:, :DIM], y_pred[:, DIM:]
    logits = ops.matmul(u, ops.transpose(v)) / TEMPERATURE
    logits = logits - ops.transpose(ops.reshape(y_true, (-1, 1)))
    positive = ops.diagonal(logits)
    return ops.mean(ops.logsumexp(logits, axis=1) - positive)
