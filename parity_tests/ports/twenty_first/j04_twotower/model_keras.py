import keras
from keras import layers, ops

USERS, ITEMS, DIM = 40, 61, 16
TEMPERATURE = 0.2


def unit(x):
    return x / ops.sqrt(ops.sum(ops.square(x), axis=-1, keepdims=True) + 1e-12)


class TwoTower(keras.Model):
    def __init__(self):
        super().__init__()
        self.user_table = layers.Embedding(USERS, DIM)
        self.item_table = layers.Embedding(ITEMS, DIM)
        self.user_tower = keras.Sequential([layers.Dense(24, activation="relu"), layers.Dense(DIM)])
        self.item_tower = layers.Dense(DIM)

    def call(self, inputs):
        history = inputs["history"]
        seen = ops.cast(ops.not_equal(history, 0), self.compute_dtype)
        taste = ops.einsum("bl,bld->bd", seen, self.item_table(history))
        taste = taste / ops.maximum(ops.sum(seen, axis=1, keepdims=True), 1.0)

        user = ops.concatenate([self.user_table(inputs["user"]), taste], axis=-1)
        user = unit(self.user_tower(user))
        item = unit(self.item_tower(self.item_table(inputs["item"])))

        logits = ops.matmul(user, ops.transpose(item)) / TEMPERATURE
        return logits - ops.expand_dims(inputs["logq"], 0)


def build():
    return TwoTower()


def sampled_softmax(watched, logits):
    labels = ops.arange(ops.shape(logits)[0])
    nll = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    watched = ops.reshape(watched, (-1,))
    return ops.sum(watched * nll) / ops.sum(watched)
