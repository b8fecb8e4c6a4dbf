import keras
from keras import layers, ops

USERS, ITEMS = 15, 21


class Ratings(keras.Model):
    def __init__(self, dim=6):
        super().__init__()
        self.user_factors = layers.Embedding(USERS, dim, name="user_factors")
        self.item_factors = layers.Embedding(ITEMS, dim, name="item_factors")
        self.implicit = layers.Embedding(ITEMS, dim, name="implicit")
        self.user_bias = layers.Embedding(USERS, 1, name="user_bias")
        self.item_bias = layers.Embedding(ITEMS, 1, name="item_bias")
        self.mean = self.add_weight(shape=(1,), initializer="zeros", name="mean")

    def call(self, inputs):
        user, item, history = inputs["user"], inputs["item"], inputs["history"]
        seen = ops.cast(ops.not_equal(history, 0), self.compute_dtype)
        count = ops.maximum(ops.sum(seen, axis=1, keepdims=True), 1)
        taste = ops.sum(self.implicit(history) * seen[..., None], axis=1) / ops.sqrt(count)
        p = self.user_factors(user) + taste
        dot = ops.sum(p * self.item_factors(item), axis=-1, keepdims=True)
        return dot + self.user_bias(user) + self.item_bias(item) + self.mean


def build():
    model = Ratings()
    ids = ops.zeros((1,), dtype="int32")
    model({"user": ids, "item": ids, "history": ops.zeros((1, 8), dtype="int32")})
    return model


def optimizer():
    return keras.optimizers.SGD(learning_rate=0.125, momentum=0.5, weight_decay=0.0625)
