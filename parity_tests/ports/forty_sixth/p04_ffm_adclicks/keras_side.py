"""Clicks on advertisements: a field-aware factorisation machine with a small network on the pooled pairs."""

import keras
from keras import layers, ops

SIZES = {"user": 50, "ad": 40, "site": 20, "hour": 25, "device": 5}
TAGS = 30
TAGS_PER_ROW = 6
FIELDS = len(SIZES) + 2
LATENT = 6


class FieldAware(layers.Layer):
    """The latent vectors (batch, own field, other field, latent) and the linear part of all fields."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        normal = keras.initializers.RandomNormal(stddev=0.3)
        width = FIELDS * LATENT
        self.tables = [
            layers.Embedding(n, width, embeddings_initializer=normal, name=f"latent_{f}")
            for f, n in SIZES.items()
        ]
        self.linear = [
            layers.Embedding(n, 1, embeddings_initializer=normal, name=f"linear_{f}")
            for f, n in SIZES.items()
        ]
        self.tags = layers.Embedding(TAGS, width, embeddings_initializer=normal, name="latent_tags")
        self.tags_linear = layers.Embedding(TAGS, 1, embeddings_initializer=normal, name="linear_tags")

    def build(self, *shapes):
        normal = keras.initializers.RandomNormal(stddev=0.3)
        self.price = self.add_weight(shape=(FIELDS * LATENT,), initializer=normal, name="latent_price")
        self.price_linear = self.add_weight(shape=(1,), initializer=normal, name="linear_price")

    def call(self, fields, tags, price):
        there = ops.cast(ops.not_equal(tags, 0), self.compute_dtype)[..., None]
        root = ops.sqrt(ops.maximum(ops.sum(there, axis=1), 1.0))
        price = ops.log1p(price)
        latent = [table(fields[:, i]) for i, table in enumerate(self.tables)]
        latent.append(ops.sum(self.tags(tags) * there, axis=1) / root)
        latent.append(price * self.price)
        linear = [table(fields[:, i]) for i, table in enumerate(self.linear)]
        linear.append(ops.sum(self.tags_linear(tags) * there, axis=1) / root)
        linear.append(price * self.price_linear)
        latent = ops.reshape(ops.stack(latent, axis=1), (-1, FIELDS, FIELDS, LATENT))
        return latent, sum(linear)


class PairPooling(layers.Layer):
    """The sum over pairs i < j of v(i for j) * v(j for i)."""

    def call(self, latent):
        pooled = 0.0
        for i in range(FIELDS):
            for j in range(i + 1, FIELDS):
                pooled = pooled + latent[:, i, j] * latent[:, j, i]
        return pooled


def build():
    fields = keras.Input((len(SIZES),), dtype="int32", name="fields")
    tags = keras.Input((TAGS_PER_ROW,), dtype="int32", name="tags")
    price = keras.Input((1,), name="price")
    latent, linear = FieldAware(name="field_aware")(fields, tags, price)
    pooled = PairPooling(name="pairs")(latent)
    deep = layers.Dense(16, activation="relu", name="hidden1")(pooled)
    deep = layers.Dense(8, activation="relu", name="hidden2")(deep)
    deep = layers.Dense(1, use_bias=False, name="deep")(deep)
    total = layers.Lambda(lambda x: ops.sum(x, axis=-1, keepdims=True), output_shape=(1,), name="pair_sum")(
        pooled
    )
    logit = layers.Add(name="logit")([linear, total, deep])
    return keras.Model([fields, tags, price], logit, name="neural_ffm")


def optimizer():
    return keras.optimizers.SGD(
        keras.optimizers.schedules.ExponentialDecay(0.25, decay_steps=10, decay_rate=0.75)
    )
