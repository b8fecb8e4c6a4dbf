"""Will a hotel booking be cancelled? Periodic embeddings of the numbers, tables of the categories, residual MLP."""

import math

import keras
import numpy as np
from keras import layers, ops

MISSING = -900.0
# lead time, nights, adults, children, rate, earlier stays, changes, days waiting
MEANS = np.array([96.4, 3.3, 1.87, 0.23, 103.7, 0.42, 0.31, 4.6], dtype=np.float32)
VARIANCES = np.array([9120.0, 5.9, 0.31, 0.29, 2180.0, 1.94, 0.47, 83.0], dtype=np.float32)
CATEGORIES = (("market", 12), ("deposit", 5), ("room", 9))


class FillMissing(layers.Layer):
    def build(self, shape):
        self.fill = self.add_weight(shape=(shape[-1],), initializer="zeros", name="fill")

    def call(self, raw, scaled):
        return ops.where(raw < MISSING, self.fill, scaled)


class Periodic(layers.Layer):
    def __init__(self, frequencies, sigma, **kwargs):
        super().__init__(**kwargs)
        self.frequencies = frequencies
        self.sigma = sigma

    def build(self, shape):
        self.coefficients = self.add_weight(
            shape=(shape[-1], self.frequencies),
            name="coefficients",
            initializer=keras.initializers.RandomNormal(stddev=self.sigma),
        )

    def call(self, x):
        angle = 2 * math.pi * self.coefficients * ops.expand_dims(x, -1)
        return ops.concatenate([ops.cos(angle), ops.sin(angle)], axis=-1)


class PerFeatureDense(layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, shape):
        _, features, width = shape
        self.kernel = self.add_weight(
            shape=(features, width, self.units), initializer="he_uniform", name="kernel"
        )
        self.bias = self.add_weight(shape=(features, self.units), initializer="zeros", name="bias")

    def call(self, x):
        return ops.relu(ops.einsum("bfi,fio->bfo", x, self.kernel) + self.bias)


def build():
    numbers = keras.Input((8,), name="numbers")
    categories = keras.Input((3,), dtype="int32", name="categories")

    scaled = layers.Normalization(mean=MEANS, variance=VARIANCES, name="standardise")(numbers)
    scaled = FillMissing(name="fill_missing")(numbers, scaled)
    x = Periodic(6, 0.3, name="periodic")(scaled)
    x = PerFeatureDense(5, name="per_feature")(x)
    parts = [layers.Flatten()(x)]
    for i, (name, size) in enumerate(CATEGORIES):
        parts.append(layers.Embedding(size, 6, name=name)(categories[:, i]))
    x = layers.Concatenate()(parts)

    x = layers.Dense(48, name="entry")(x)
    for i in range(3):
        y = layers.LayerNormalization(epsilon=1e-5, name=f"block{i}_norm")(x)
        y = layers.Dense(64, activation="relu", name=f"block{i}_up")(y)
        y = layers.Dense(48, name=f"block{i}_down")(y)
        x = x + y
    x = layers.LayerNormalization(epsilon=1e-5, name="final_norm")(x)
    x = layers.Activation("relu")(x)
    logit = layers.Dense(1, name="cancelled")(x)
    return keras.Model({"numbers": numbers, "categories": categories}, logit, name="cancellations")
