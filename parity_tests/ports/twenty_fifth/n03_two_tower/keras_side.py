"""Two-tower retrieval with in-batch negatives, corrected for popularity, accidental hits taken out."""

import keras
from keras import layers, ops


class TwoTower(keras.Model):
    def __init__(self, users=40, items=30, dim=8):
        super().__init__(name="two_tower")
        self.user_table = layers.Embedding(users, dim, name="user_table")
        self.item_table = layers.Embedding(items, dim, name="item_table")
        self.context = layers.Dense(6, activation="elu", name="context")
        self.query_hidden = layers.Dense(16, activation="tanh", name="query_hidden")
        self.query_out = layers.Dense(dim, name="query_out")
        self.genres = layers.Dense(dim, use_bias=False, name="genres")
        self.item_hidden = layers.Dense(16, activation="selu", name="item_hidden")
        self.item_out = layers.Dense(dim, name="item_out")
        self.unit = layers.UnitNormalization()
        self.log_scale = self.add_weight(
            shape=(), name="log_scale", initializer=keras.initializers.Constant(1.5)
        )

    def call(self, inputs):
        user = self.user_table(inputs["user"])
        query = ops.concatenate([user, self.context(inputs["context"])], axis=-1)
        query = self.unit(self.query_out(self.query_hidden(query)) + user)
        item = self.item_table(inputs["item"]) + self.genres(inputs["genre_flags"])
        item = self.unit(self.item_out(self.item_hidden(item)))
        return ops.concatenate([ops.exp(self.log_scale) * query, item], axis=-1)


def build():
    return TwoTower()


def retrieval_loss(targets, outputs):
    """targets: log of the item's share of the traffic, and its id."""
    query, item = ops.split(outputs, 2, axis=-1)
    log_share, ids = targets[:, 0], ops.cast(targets[:, 1], "int32")
    n = ops.shape(query)[0]
    logits = ops.matmul(query, ops.transpose(item)) - ops.cast(log_share, query.dtype)[None, :]
    same = ops.logical_and(ids[:, None] == ids[None, :], ops.logical_not(ops.eye(n, dtype="bool")))
    logits = ops.where(same, -1e9, logits)
    return keras.losses.sparse_categorical_crossentropy(ops.arange(n), logits, from_logits=True)
