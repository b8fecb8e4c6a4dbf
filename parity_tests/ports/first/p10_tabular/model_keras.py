"""Tabular net: numbers and three categories, residual blocks with batch norm (subclassed Keras)."""

import keras
from keras import layers, ops

CARDINALITIES = (7, 12, 30)


class ResidualBlock(layers.Layer):
    def __init__(self, width, **kw):
        super().__init__(**kw)
        self.norm = layers.BatchNormalization(name="norm")
        self.linear1 = layers.Dense(2 * width, activation="relu", name="linear1")
        self.linear2 = layers.Dense(width, name="linear2")

    def call(self, x, training=None):
        return x + self.linear2(self.linear1(self.norm(x, training=training)))


class TabularNet(keras.Model):
    def __init__(self, width=32, depth=2, classes=2):
        super().__init__()
        self.embeddings = [layers.Embedding(c, 6, name=f"embedding{i}") for i, c in enumerate(CARDINALITIES)]
        self.numeric_norm = layers.BatchNormalization(scale=True, center=True, name="numeric_norm")
        self.first = layers.Dense(width, name="first")
        self.blocks = [ResidualBlock(width, name=f"block{i}") for i in range(depth)]
        self.last_norm = layers.BatchNormalization(name="last_norm")
        self.head = layers.Dense(classes, name="head")

    def call(self, inputs, training=None):
        numeric, categories = inputs
        columns = [e(categories[:, i]) for i, e in enumerate(self.embeddings)]
        x = ops.concatenate([self.numeric_norm(numeric, training=training), *columns], axis=-1)
        x = self.first(x)
        for block in self.blocks:
            x = block(x, training=training)
        return self.head(ops.relu(self.last_norm(x, training=training)))
