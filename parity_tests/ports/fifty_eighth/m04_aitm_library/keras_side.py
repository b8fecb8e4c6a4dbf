"""Adaptive information transfer over the steps of a library's funnel: visit, reserve, number of loans."""

import math

import keras
from keras import layers, ops

CATEGORIES = {"branch": 8, "age_band": 6, "genre": 10}
EMBED = 4
TASKS = ("visit", "reserve", "loans")
TOWER = (24, 12)


class Transfer(layers.Layer):
    """Attention over what the task before passes on and the task's own vector."""

    def __init__(self, dim, **kwargs):
        super().__init__(**kwargs)
        self.dim = dim
        self.value = layers.Dense(dim, name="value")
        self.key = layers.Dense(dim, name="key")
        self.query = layers.Dense(dim, name="query")

    def build(self, shape):
        for part in (self.value, self.key, self.query):
            part.build((None, self.dim))
        self.built = True

    def call(self, pair):  # (batch, 2, dim)
        score = ops.sum(self.key(pair) * self.query(pair), axis=-1) / math.sqrt(self.dim)
        share = ops.softmax(score, axis=1)
        return ops.sum(share[..., None] * self.value(pair), axis=1)


class AITM(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.tables = {k: layers.Embedding(n, EMBED, name=f"{k}_table") for k, n in CATEGORIES.items()}
        self.bottoms = [
            [layers.Dense(w, activation="relu", name=f"{t}_bottom{i}") for i, w in enumerate(TOWER)]
            for t in TASKS
        ]
        self.passing = [layers.Dense(TOWER[-1], activation="relu", name=f"{t}_pass") for t in TASKS[:-1]]
        self.transfers = [Transfer(TOWER[-1], name=f"{t}_transfer") for t in TASKS[1:]]
        self.heads = [layers.Dense(1, name=f"{t}_head") for t in TASKS]

    def call(self, inputs):
        parts = [self.tables[k](inputs[k]) for k in CATEGORIES] + [inputs["habits"]]
        x = ops.concatenate(parts, axis=-1)
        owns = []
        for first, second in self.bottoms:
            owns.append(second(first(x)))
        outputs, fused = {}, owns[0]
        outputs[TASKS[0]] = self.heads[0](fused)
        for i, task in enumerate(TASKS[1:]):
            passed = self.passing[i](fused)
            fused = self.transfers[i](ops.stack([passed, owns[i + 1]], axis=1))
            outputs[task] = self.heads[i + 1](fused)
        # one reserves only when one visits: the log odds of the later step are capped by those of the earlier
        outputs["reserve"] = -ops.logaddexp(-outputs["reserve"], -ops.stop_gradient(outputs["visit"]))
        return outputs


def event_loss(targets, outputs):
    """Binary cross-entropy of log odds, positives count thrice."""
    y = ops.cast(targets, outputs.dtype)
    return ops.mean(3.0 * y * ops.softplus(-outputs) + (1.0 - y) * ops.softplus(outputs), axis=-1)


def loans_loss(targets, outputs):
    """Poisson deviance of the log rate, without the constant of the targets."""
    y = ops.cast(targets, outputs.dtype)
    return ops.mean(ops.exp(outputs) - y * outputs, axis=-1)


def build():
    model = AITM(name="library")
    model({**{k: ops.zeros((1,), dtype="int32") for k in CATEGORIES}, "habits": ops.zeros((1, 5))})
    return model
