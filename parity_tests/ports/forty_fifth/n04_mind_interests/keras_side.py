"""Multi-interest retrieval with dynamic routing: behaviours to interest capsules, attention of each candidate over them."""

import keras
import numpy as np
from keras import layers, ops

ITEMS, CATEGORIES, LENGTH, CANDIDATES = 900, 18, 20, 11
DIM, INTERESTS, ROUNDS, POWER = 32, 4, 3, 2.0
PROFILE = (("age", 8), ("city", 30), ("device", 4))

CATEGORY = ((np.arange(ITEMS) * 7919) % CATEGORIES).astype(np.int32)
ROUTING = np.random.RandomState(2019).normal(size=(INTERESTS, LENGTH)).astype(np.float32)
HOW_MANY = np.clip(np.log2(np.maximum(np.arange(LENGTH + 1), 1)), 1, INTERESTS).astype(np.int32)
_rank = 1.0 / (np.arange(ITEMS) + 10.0) ** 0.8
LOG_Q = np.log(_rank / _rank.sum()).astype(np.float32)


def wide():
    return keras.initializers.RandomNormal(stddev=0.7)


def squash(x):
    square = ops.sum(ops.square(x), axis=-1, keepdims=True)
    return square / (1.0 + square) * x / ops.sqrt(square + 1e-8)


class Items(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.item = layers.Embedding(ITEMS, DIM, wide(), name="item")
        self.category = layers.Embedding(CATEGORIES, DIM, wide(), name="category")

    def build(self, shape):
        self.item.build(shape)
        self.category.build(shape)
        super().build(shape)

    def call(self, ids):
        return 0.5 * (self.item(ids) + self.category(ops.take(CATEGORY, ids)))


class InterestCapsules(layers.Layer):
    """Behaviours to interests by routing with a shared bilinear map; the coefficients are found without gradient."""

    def build(self, shape, *_):
        self.bilinear = self.add_weight(
            shape=(shape[-1], shape[-1]), initializer="glorot_uniform", name="bilinear"
        )
        super().build(shape)

    def call(self, behaviours, there):
        mapped = ops.matmul(behaviours, self.bilinear)
        fixed = ops.stop_gradient(mapped)
        there = ops.cast(there, mapped.dtype)[:, None]
        logits = ops.convert_to_tensor(ROUTING, dtype=mapped.dtype)[None]
        for _ in range(ROUNDS - 1):
            coupling = ops.softmax(logits, axis=1) * there
            capsules = squash(ops.matmul(coupling, fixed))
            logits = logits + ops.matmul(capsules, ops.transpose(fixed, (0, 2, 1)))
        return squash(ops.matmul(ops.softmax(logits, axis=1) * there, mapped))


class MIND(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.items = Items(name="items")
        self.gap = layers.Embedding(10, DIM, wide(), name="gap")
        self.capsules = InterestCapsules(name="capsules")
        self.fields = [layers.Embedding(size, 8, name=name) for name, size in PROFILE]
        self.hidden = layers.Dense(48, activation="relu", name="hidden")
        self.project = layers.Dense(DIM, name="project")

    def call(self, inputs, training=False):
        names = ("history", "gaps", "profile", "candidates")
        history, gaps, profile, candidates = [
            ops.cast(x, "int32") for x in ([inputs[n] for n in names] if isinstance(inputs, dict) else inputs)
        ]
        there = history > 0
        interests = self.capsules(self.items(history) + self.gap(gaps), there)
        user = ops.concatenate([field(profile[:, i]) for i, field in enumerate(self.fields)], axis=-1)
        user = ops.repeat(user[:, None], INTERESTS, axis=1)
        interests = self.project(self.hidden(ops.concatenate([interests, user], axis=-1)))

        length = ops.sum(ops.cast(there, "int32"), axis=1)
        on = ops.arange(INTERESTS, dtype="int32")[None] < ops.take(HOW_MANY, length)[:, None]
        items = self.items(candidates)
        match = ops.matmul(items, ops.transpose(interests, (0, 2, 1)))
        weights = ops.softmax(ops.where(on[:, None], POWER * match, -1e9), axis=-1)
        logits = ops.sum(weights * match, axis=-1)
        if training:  # candidates were drawn by popularity
            logits = logits - ops.take(ops.convert_to_tensor(LOG_Q, dtype=logits.dtype), candidates)
        return logits


def build():
    model = MIND(name="mind")
    model(
        {
            "history": np.ones((1, LENGTH), "int32"),
            "gaps": np.ones((1, LENGTH), "int32"),
            "profile": np.zeros((1, len(PROFILE)), "int32"),
            "candidates": np.ones((1, CANDIDATES), "int32"),
        }
    )
    return model
