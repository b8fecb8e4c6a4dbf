import keras
from keras import layers, ops
from keras.regularizers import L2

USERS, ITEMS, DIM, HIST = 30, 41, 8, 6


class HistoryPooling(layers.Layer):
    """Attention of the candidate item over the items seen before (0 = padding)."""

    def call(self, candidate, history, ids):
        score = ops.einsum("bd,btd->bt", candidate, history) / DIM**0.5
        seen = ops.not_equal(ids, 0)
        w = ops.exp(score - ops.max(score, axis=1, keepdims=True)) * ops.cast(seen, score.dtype)
        w = w / (ops.sum(w, axis=1, keepdims=True) + 1e-9)
        return ops.einsum("bt,btd->bd", w, history)


def build():
    user = keras.Input((1,), dtype="int32", name="user_id")
    item = keras.Input((1,), dtype="int32", name="item_id")
    hist = keras.Input((HIST,), dtype="int32", name="history")

    item_table = layers.Embedding(ITEMS, DIM, embeddings_regularizer=L2(1e-3), name="item_embedding")
    u = layers.Flatten()(
        layers.Embedding(USERS, DIM, embeddings_regularizer=L2(1e-3), name="user_embedding")(user)
    )
    i = layers.Flatten()(item_table(item))
    h = HistoryPooling(name="history_pool")(i, item_table(hist), hist)

    x = layers.Concatenate()([u, i, h, layers.Multiply()([u, i])])
    x = layers.Dense(24, activation="relu", kernel_regularizer=L2(1e-4))(x)
    x = layers.Dense(12, activation="relu", kernel_regularizer=L2(1e-4))(x)
    deep = layers.Dense(1)(x)
    wide = layers.Flatten()(layers.Embedding(ITEMS, 1, name="item_bias")(item))
    fm = layers.Dot(axes=1)([u, i])
    out = layers.Add(name="score")([deep, wide, fm])
    return keras.Model({"user_id": user, "item_id": item, "history": hist}, out)


def loss(y_true, y_pred):
    return ops.mean(keras.losses.binary_crossentropy(y_true, y_pred, from_logits=True))
