"""Retrieval towers for a recipe recommender, trained with in-batch negatives.

The model emits [user vector | item vector]; the loss builds the B x B score matrix from them.
Targets carry two columns per row: the item id and the log of its sampling probability.
"""

import keras
from keras import layers, ops

N_USERS, N_ITEMS, DIM = 20, 30, 8
TEMPERATURE = 0.2


@keras.saving.register_keras_serializable("towers")
class MaskedMean(layers.Layer):
    def call(self, emb, ids):
        keep = ops.cast(ops.not_equal(ids, 0), emb.dtype)[..., None]
        return ops.sum(emb * keep, axis=1) / ops.maximum(ops.sum(keep, axis=1), 1.0)


class Unit(layers.Layer):
    def call(self, v):
        return v / ops.sqrt(ops.sum(v * v, axis=-1, keepdims=True) + 1e-8)


def build():
    user = keras.Input((), dtype="int32", name="user")
    history = keras.Input((6,), dtype="int32", name="history")
    item = keras.Input((), dtype="int32", name="item")

    item_table = layers.Embedding(N_ITEMS, DIM, name="item_table")
    u = layers.Embedding(N_USERS, DIM, name="user_table")(user)
    past = MaskedMean(name="past")(item_table(history), history)
    u = layers.Concatenate()([u, past])
    u = layers.Dense(16, activation="silu", name="u1")(u)
    u = Unit()(layers.Dense(DIM, name="u2")(u))

    v = item_table(item)
    v = layers.Dense(16, activation="silu", name="i1")(v)
    v = Unit()(layers.Dense(DIM, name="i2")(v))
    return keras.Model([user, history, item], layers.Concatenate(name="uv")([u, v]))


def retrieval_loss(y_true, y_pred):
    u, v = y_pred[:, :DIM], y_pred[:, DIM:]
    ids, log_q = y_true[:, 0], ops.cast(y_true[:, 1], y_pred.dtype)
    scores = ops.matmul(u, ops.transpose(v)) / TEMPERATURE
    scores = scores - log_q[None, :]
    same = ops.cast(ops.equal(ids[:, None], ids[None, :]), scores.dtype)
    eye = ops.eye(ops.shape(ids)[0], dtype=scores.dtype)
    scores = scores - 1e9 * (same - eye)
    diag = ops.sum(scores * eye, axis=1)
    return ops.logsumexp(scores, axis=1) - diag
