"""Neural collaborative ranking: a chosen item against a few others, of which 0 means that there is none."""

import keras
from keras import layers, ops

USERS, ITEMS, WIDTH = 40, 60, 12


class Scorer(layers.Layer):
    """A generalised dot product and a perceptron, for all candidates of a row."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.item_table = layers.Embedding(ITEMS, WIDTH, name="item_table")
        self.item_bias = layers.Embedding(ITEMS, 1, embeddings_initializer="zeros", name="item_bias")
        self.hidden = layers.Dense(20, activation="relu", name="hidden")
        self.deep = layers.Dense(1, use_bias=False, name="deep")
        self.wide = layers.Dense(1, use_bias=False, name="wide")

    def call(self, user, items):
        item = self.item_table(items)
        user = ops.broadcast_to(user, ops.shape(item))
        score = self.wide(user * item) + self.item_bias(items)
        score = score + self.deep(self.hidden(ops.concatenate([user, item], axis=-1)))
        return ops.squeeze(score, axis=-1)


def build():
    user = keras.Input((1,), dtype="int32", name="user")
    chosen = keras.Input((1,), dtype="int32", name="chosen")
    others = keras.Input((4,), dtype="int32", name="others")
    vector = layers.Embedding(USERS, WIDTH, name="user_table")(user)
    scorer = Scorer(name="scorer")
    margin = scorer(vector, chosen) - scorer(vector, others)
    there = ops.cast(ops.not_equal(others, 0), margin.dtype)
    return keras.Model([user, chosen, others], ops.stack([margin, there], axis=-1))


def bpr(strength, outputs):
    """For each row; a stronger preference asks for a larger margin."""
    margin, there = outputs[..., 0], outputs[..., 1]
    cost = ops.softplus(ops.reshape(strength, (-1, 1)) - margin)
    return ops.sum(cost * there, axis=-1) / ops.maximum(ops.sum(there, axis=-1), 1)


def optimizer():
    sgd = keras.optimizers.SGD(0.25, momentum=0.875, weight_decay=1 / 64)
    sgd.exclude_from_weight_decay(var_names=["embeddings", "bias"])
    return sgd
