"""Attentional factorisation machine: who orders from a seed catalogue.

cats: region, garden type, last family bought, channel, month bucket, price class; 0 stands for "not known".
nums: log of the last order's value, share of organic seed.
"""

from itertools import combinations

import keras
from keras import layers, ops

FIELDS = {"region": 9, "garden": 6, "family": 12, "channel": 5, "month": 8, "price": 4}
NUMBERS = 2
DIM, ATTENTION = 8, 12


class Scaled(layers.Layer):
    """A vector for each number, times the number."""

    def __init__(self, dim, **kwargs):
        super().__init__(**kwargs)
        self.dim = dim

    def build(self, shape):
        self.vectors = self.add_weight(
            shape=(shape[-1], self.dim), initializer="random_normal", name="vectors"
        )

    def call(self, numbers):
        return numbers[..., None] * self.vectors


class AttentionalPairs(layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.hidden = layers.Dense(units, activation="relu", name="hidden")
        self.score = layers.Dense(1, use_bias=False, name="score")

    def call(self, fields):
        left, right = zip(*combinations(range(fields.shape[1]), 2))
        pairs = ops.take(fields, left, axis=1) * ops.take(fields, right, axis=1)
        weight = ops.softmax(self.score(self.hidden(pairs)), axis=1)
        return ops.sum(weight * pairs, axis=1)


def build():
    cats = keras.Input((len(FIELDS),), dtype="int32", name="cats")
    nums = keras.Input((NUMBERS,), name="nums")

    vectors, first = [], []
    for i, (name, size) in enumerate(FIELDS.items()):
        vectors.append(layers.Embedding(size, DIM, name=f"{name}_vector")(cats[:, i]))
        first.append(layers.Embedding(size, 1, name=f"{name}_weight")(cats[:, i]))
    fields = layers.Concatenate(axis=1)(
        [ops.stack(vectors, axis=1), Scaled(DIM, name="number_vectors")(nums)]
    )

    pooled = AttentionalPairs(ATTENTION, name="pairs")(fields)
    second = layers.Dense(1, use_bias=False, name="projection")(pooled)
    linear = layers.Dense(1, name="number_weight")(nums)
    return keras.Model([cats, nums], layers.Add(name="ordered")([second, linear] + first))


def optimizer():
    schedule = keras.optimizers.schedules.CosineDecayRestarts(
        0.4, first_decay_steps=8, t_mul=2.0, m_mul=0.7, alpha=0.05
    )
    return keras.optimizers.SGD(schedule, weight_decay=1e-4)
