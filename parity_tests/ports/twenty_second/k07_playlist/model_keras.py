import keras
from keras import layers, ops


class Recency(layers.Layer):
    def build(self, shape):
        self.logit = self.add_weight(shape=(shape[1],), initializer="zeros", name="logit")

    def call(self, x):
        return ops.einsum("t,btd->bd", ops.softmax(self.logit), x)


class Cosine(layers.Layer):
    def build(self, query_shape, items_shape):
        self.scale = self.add_weight(shape=(), initializer=keras.initializers.Constant(5.0), name="scale")

    def call(self, query, items):
        q = ops.normalize(query, axis=-1)
        k = ops.normalize(items, axis=-1)
        return self.scale * ops.sum(q[:, None, :] * k, axis=-1)


def build(tracks=60, dim=12, steps=10, choices=6):
    history = keras.Input((steps,), dtype="int32", name="history")
    options = keras.Input((choices,), dtype="int32", name="options")
    table = layers.Embedding(tracks, dim, name="tracks")
    popularity = layers.Embedding(tracks, 1, name="popularity")

    listened = table(history)
    taste = Recency()(listened)
    taste = taste + layers.Dense(dim, activation="tanh", name="mix")(taste)
    logits = Cosine()(taste, table(options))
    logits = logits + ops.squeeze(popularity(options), axis=-1)
    return keras.Model([history, options], logits)
