"""GANDALF: gated feature learning units on a table of village water pumps; which work, need repair, or do not."""

import keras
import numpy as np
from keras import layers, ops

NUMERIC = 9
SIZES = (12, 7, 5, 20, 4)
CLASSES = 3
TURN = float(np.float32(2.0 * np.pi))
MEAN = np.array([1200.0, 32.0, 850.0, 0.5, 12.0, 3.0, 41.5, 7.25, 0.0], np.float32)
SCALE = np.array([512.0, 16.0, 512.0, 0.25, 8.0, 2.0, 16.0, 1.5, 1.0], np.float32)


class Numeric(layers.Layer):
    """Standardise; where nothing was measured, a value that is learned. Then sines and cosines of learned periods."""

    def __init__(self, frequencies=3, sigma=0.3, width=4, **kwargs):
        super().__init__(**kwargs)
        self.frequencies = frequencies
        self.sigma = sigma
        self.width = width

    def build(self, shape):
        n = shape[-1]
        self.fill = self.add_weight(shape=(n,), initializer="random_normal", name="fill")
        self.period = self.add_weight(
            shape=(n, self.frequencies),
            initializer=keras.initializers.RandomNormal(stddev=self.sigma),
            name="period",
        )
        self.kernel = self.add_weight(
            shape=(n, 2 * self.frequencies, self.width), initializer="he_uniform", name="kernel"
        )
        self.offset = self.add_weight(shape=(n, self.width), initializer="zeros", name="offset")

    def call(self, x):
        missing = ops.isnan(x)
        known = (ops.where(missing, ops.cast(MEAN, x.dtype), x) - MEAN) / SCALE
        x = ops.where(missing, self.fill, known)
        angle = TURN * x[..., None] * self.period
        waves = ops.concatenate([ops.cos(angle), ops.sin(angle)], axis=-1)
        return ops.relu(ops.einsum("bnf,nfw->bnw", waves, self.kernel) + self.offset)


def t_softmax(x, t):
    """A softmax that gives 0 to what is more than t below the largest."""
    below = x - ops.max(x, axis=-1, keepdims=True)
    weights = ops.relu(below + t) * ops.exp(below)
    return weights / ops.sum(weights, axis=-1, keepdims=True)


class GatedFeatureUnit(layers.Layer):
    def __init__(self, stages=4, **kwargs):
        super().__init__(**kwargs)
        self.stages = stages

    def build(self, shape):
        n = shape[-1]
        self.masks = self.add_weight(
            shape=(self.stages, n), initializer=keras.initializers.RandomUniform(0.0, 2.0), name="masks"
        )
        self.t = self.add_weight(
            shape=(self.stages, 1), initializer=keras.initializers.Constant(1.0), name="t"
        )
        self.gates = [
            layers.Dense(2 * n, activation="sigmoid", name=f"gates_{i}") for i in range(self.stages)
        ]
        self.candidates = [
            layers.Dense(n, activation="tanh", name=f"candidate_{i}") for i in range(self.stages)
        ]
        for dense in self.gates + self.candidates:
            dense.build((None, 2 * n))

    def call(self, x):
        hidden = x
        selection = t_softmax(self.masks, ops.softplus(self.t))
        for i in range(self.stages):
            feature = selection[i] * x
            z, r = ops.split(self.gates[i](ops.concatenate([feature, hidden], axis=-1)), 2, axis=-1)
            candidate = self.candidates[i](ops.concatenate([r * hidden, feature], axis=-1))
            hidden = (1.0 - z) * hidden + z * candidate
        return hidden


def build():
    numeric = keras.Input((NUMERIC,), name="numeric")
    category = keras.Input((len(SIZES),), dtype="int32", name="category")
    parts = [layers.Flatten()(Numeric(name="numbers")(numeric))]
    for i, size in enumerate(SIZES):
        parts.append(layers.Embedding(size, 4, name=f"category_{i}")(category[:, i]))
    x = layers.Concatenate(name="row")(parts)
    x = GatedFeatureUnit(name="gflu")(x)
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(x)
    x = layers.Dense(24, activation="silu", name="hidden")(x)
    return keras.Model([numeric, category], layers.Dense(CLASSES, name="logits")(x), name="gandalf")


def optimizer():
    rate = keras.optimizers.schedules.CosineDecay(
        0.015625, 60, alpha=0.0625, warmup_target=0.0625, warmup_steps=8
    )
    sgd = keras.optimizers.SGD(rate, momentum=0.875, nesterov=True, weight_decay=0.015625)
    sgd.exclude_from_weight_decay(var_names=["bias", "gamma", "beta", "fill"])
    return sgd
