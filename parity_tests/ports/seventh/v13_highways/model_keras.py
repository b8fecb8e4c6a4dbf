"""Tags of a short text from its characters: convolutions of several widths, maxima, highway layers."""

import keras
from keras import layers, ops


class Highway(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)

    def build(self, shape):
        units = shape[-1]
        self.carry = layers.Dense(
            units, activation="sigmoid", bias_initializer=keras.initializers.Constant(-2.0)
        )
        self.transform = layers.Dense(units, activation="relu")
        self.carry.build(shape)
        self.transform.build(shape)

    def call(self, x):
        gate = self.carry(x)
        return gate * self.transform(x) + (1 - gate) * x


class Tagger(keras.Model):
    def __init__(self, characters=30, tags=6, dim=8, filters=((1, 4), (2, 6), (3, 8), (5, 8)), **kwargs):
        super().__init__(**kwargs)
        self.embedding = layers.Embedding(characters, dim)
        self.convolutions = [
            layers.Conv1D(n, width, padding="same", activation="tanh") for width, n in filters
        ]
        self.highways = [Highway() for _ in range(2)]
        self.dropout = layers.Dropout(0.25)
        self.tags = layers.Dense(tags, activation="sigmoid")

    def call(self, text, training=False):
        real = ops.expand_dims(text != 0, -1)  # 0 fills up
        x = self.embedding(text)
        x = x * ops.cast(real, x.dtype)
        maxima = [ops.max(ops.where(real, conv(x), -1.0), axis=1) for conv in self.convolutions]
        x = ops.concatenate(maxima, axis=-1)
        for highway in self.highways:
            x = highway(x)
        return self.tags(self.dropout(x, training=training))


def build():
    model = Tagger()
    model(keras.ops.ones((1, 20), dtype="int32"))
    return model
