import keras
from keras import layers, ops


class RatingModel(keras.Model):
    def __init__(self, users=40, items=50, dim=8, **kwargs):
        super().__init__(**kwargs)
        self.user_vec = layers.Embedding(users, dim, name="user_vec")
        self.item_vec = layers.Embedding(items, dim, name="item_vec")
        self.user_bias = layers.Embedding(users, 1, name="user_bias")
        self.item_bias = layers.Embedding(items, 1, name="item_bias")
        self.genre_vec = layers.Dense(dim, use_bias=False, name="genre_vec")
        self.bottom = [layers.Dense(16, activation="relu"), layers.Dense(dim, activation="relu")]
        self.top = [layers.Dense(24, activation="relu"), layers.Dense(12, activation="relu"), layers.Dense(1)]

    def call(self, inputs):
        u = self.user_vec(inputs["user"])
        i = self.item_vec(inputs["item"])
        g = self.genre_vec(inputs["genres"])
        d = inputs["dense"]
        for layer in self.bottom:
            d = layer(d)
        vectors = [d, u, i, g]
        dots = []
        for a in range(len(vectors)):
            for b in range(a):
                dots.append(ops.sum(vectors[a] * vectors[b], axis=-1, keepdims=True))
        x = ops.concatenate([d] + dots, axis=-1)
        for layer in self.top:
            x = layer(x)
        return x + self.user_bias(inputs["user"]) + self.item_bias(inputs["item"])


def build():
    inputs = {
        "user": keras.Input((), dtype="int32", name="user"),
        "item": keras.Input((), dtype="int32", name="item"),
        "genres": keras.Input((10,), name="genres"),
        "dense": keras.Input((5,), name="dense"),
    }
    return keras.Model(inputs, RatingModel(name="dlrm")(inputs))
