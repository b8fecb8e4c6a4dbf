"""Two-tower retrieval: a user's history against items, with the batch's other items as negatives."""

import keras
from keras import layers, ops

USERS, ITEMS, LENGTH, DIM = 120, 200, 10, 24


@keras.saving.register_keras_serializable("retrieval")
class UserTower(layers.Layer):
    def __init__(self, items, **kwargs):
        super().__init__(**kwargs)
        self.items = items
        self.users = layers.Embedding(USERS, DIM, name="users")
        self.hidden = layers.Dense(48, activation="relu", name="hidden")
        self.out = layers.Dense(DIM, name="out")

    def call(self, user, history):
        seen = ops.cast(ops.not_equal(history, 0), self.compute_dtype)[..., None]
        clicks = ops.sum(self.items(history) * seen, axis=1) / ops.maximum(ops.sum(seen, axis=1), 1)
        x = ops.concatenate([self.users(user), clicks], axis=-1)
        return self.out(self.hidden(x))


@keras.saving.register_keras_serializable("retrieval")
class ItemTower(layers.Layer):
    def __init__(self, items, **kwargs):
        super().__init__(**kwargs)
        self.items = items
        self.hidden = layers.Dense(48, activation="relu", name="hidden")
        self.out = layers.Dense(DIM, name="out")

    def call(self, item, price):
        x = ops.concatenate([self.items(item), price], axis=-1)
        return self.out(self.hidden(x))


@keras.saving.register_keras_serializable("retrieval")
class Retrieval(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.items = layers.Embedding(ITEMS, DIM, name="items")
        self.user_tower = UserTower(self.items, name="user_tower")
        self.item_tower = ItemTower(self.items, name="item_tower")

    def call(self, inputs):
        user = self.user_tower(inputs["user"], inputs["history"])
        item = self.item_tower(inputs["item"], inputs["price"])
        return ops.stack([ops.normalize(user, axis=-1), ops.normalize(item, axis=-1)], axis=1)


def loss(y_true, y_pred, temperature=0.1):
    """In-batch softmax in both directions; the same item elsewhere in the batch is no negative."""
    item = ops.reshape(y_true, (-1,))
    user_vectors, item_vectors = y_pred[:, 0], y_pred[:, 1]
    logits = ops.matmul(user_vectors, ops.transpose(item_vectors)) / temperature
    n = ops.shape(logits)[0]
    same = ops.equal(item[:, None], item[None, :])
    accidental = ops.logical_and(same, ops.logical_not(ops.cast(ops.eye(n), "bool")))
    logits = ops.where(accidental, ops.cast(-1e9, logits.dtype), logits)
    labels = ops.arange(n)
    of_users = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    of_items = keras.losses.sparse_categorical_crossentropy(labels, ops.transpose(logits), from_logits=True)
    return ops.mean(of_users + of_items) / 2


def build():
    return Retrieval(name="retrieval")
