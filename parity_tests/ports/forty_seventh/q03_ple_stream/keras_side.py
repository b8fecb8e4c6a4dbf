"""Progressive layered extraction for a video feed: click, like given click, seconds watched."""

import keras
import numpy as np
from keras import layers, ops

USERS, ITEMS, EMBED = 120, 200, 12
EXPERT_DIM, SPECIFIC, SHARED = 20, 2, 3
TASKS = ("click", "like", "watch")
CENTRE = np.array([3.2, 0.45, 12.0, 40.0, 0.1, 1.7], dtype=np.float32)
SPREAD = np.array([1.1, 0.25, 5.0, 22.0, 0.3, 0.9], dtype=np.float32)


class Tabular(layers.Layer):
    """Standardised numbers, a learned value for each that is missing."""

    def build(self, shape):
        self.fallback = self.add_weight(shape=(shape[-1],), initializer="random_normal", name="fallback")

    def call(self, x):
        z = (x - ops.convert_to_tensor(CENTRE, dtype=x.dtype)) / ops.convert_to_tensor(SPREAD, dtype=x.dtype)
        missing = ops.isnan(x)
        return ops.where(
            missing, self.fallback, ops.clip(ops.where(missing, ops.zeros_like(z), z), -4.0, 4.0)
        )


class TargetPooling(layers.Layer):
    """History weighted by its agreement with the candidate item; an empty history gives zeros."""

    def call(self, history, item, mask):
        score = ops.einsum("bnd,bd->bn", history, item) / np.float32(np.sqrt(EMBED)).item()
        m = ops.cast(mask, score.dtype)
        weight = ops.sigmoid(score) * m
        return ops.einsum("bn,bnd->bd", weight, history) / ops.maximum(ops.sum(m, axis=1, keepdims=True), 1.0)


class ExpertBank(layers.Layer):
    def __init__(self, count, units, **kw):
        super().__init__(**kw)
        self.count, self.units = count, units

    def build(self, shape):
        self.kernel = self.add_weight(
            shape=(self.count, shape[-1], self.units), initializer="he_normal", name="kernel"
        )
        self.bias = self.add_weight(shape=(self.count, self.units), initializer="zeros", name="bias")

    def call(self, x):
        return ops.silu(ops.einsum("bi,eio->beo", x, self.kernel) + self.bias)


def mix(gate, experts):
    return ops.einsum("be,beo->bo", gate, experts)


def extraction(streams, level, last):
    """streams: one tensor for each task, then the shared one."""
    own = [ExpertBank(SPECIFIC, EXPERT_DIM, name=f"l{level}_{t}_experts")(s) for t, s in zip(TASKS, streams)]
    common = ExpertBank(SHARED, EXPERT_DIM, name=f"l{level}_shared_experts")(streams[-1])
    out = []
    for t, s, e in zip(TASKS, streams, own):
        gate = layers.Dense(
            SPECIFIC + SHARED, activation="softmax", use_bias=False, name=f"l{level}_{t}_gate"
        )(s)
        out.append(mix(gate, ops.concatenate([e, common], axis=1)))
    if not last:
        total = len(TASKS) * SPECIFIC + SHARED
        gate = layers.Dense(total, activation="softmax", use_bias=False, name=f"l{level}_shared_gate")(
            streams[-1]
        )
        out.append(mix(gate, ops.concatenate(own + [common], axis=1)))
    return out


def build():
    user = keras.Input((), dtype="int32", name="user")
    item = keras.Input((), dtype="int32", name="item")
    history = keras.Input((10,), dtype="int32", name="history")
    numbers = keras.Input((6,), name="numbers")
    users = layers.Embedding(USERS, EMBED, name="users")
    items = layers.Embedding(ITEMS, EMBED, name="items")
    u, i = users(user), items(item)
    h = TargetPooling(name="interest")(items(history), i, ops.not_equal(history, 0))
    x = layers.Concatenate()([u, i, h, u * i, Tabular(name="tabular")(numbers)])
    x = layers.LayerNormalization(epsilon=1e-5, name="input_norm")(x)

    streams = extraction([x] * (len(TASKS) + 1), 0, last=False)
    streams = extraction(streams, 1, last=True)
    raw = {}
    for t, s in zip(TASKS, streams):
        s = layers.Dense(16, activation="silu", name=f"{t}_tower")(s)
        raw[t] = layers.Dense(1, name=f"{t}_head")(s)[:, 0]
    joint = ops.log_sigmoid(raw["click"]) + ops.log_sigmoid(raw["like"])
    outputs = {"click": raw["click"], "like": joint, "watch": ops.softplus(raw["watch"])}
    return keras.Model([user, item, history, numbers], outputs, name="ple")


def click_loss(targets, outputs):
    y = ops.cast(targets, outputs.dtype)
    return ops.mean(keras.losses.binary_crossentropy(y[:, None], outputs[:, None], from_logits=True))


def like_loss(targets, outputs):
    """Outputs are log probabilities of click and like."""
    y = ops.cast(targets, outputs.dtype)
    return -ops.mean(y * outputs + (1.0 - y) * ops.log(-ops.expm1(outputs)))


def watch_loss(targets, outputs):
    """Log-ratio of the seconds watched, of those that were watched (others are -1)."""
    y = ops.cast(targets, outputs.dtype)
    seen = ops.cast(y >= 0, outputs.dtype)
    error = ops.log1p(outputs) - ops.log1p(ops.maximum(y, 0.0))
    penalty = ops.logaddexp(error, -error) - float(np.log(2.0))
    return ops.sum(seen * penalty) / ops.maximum(ops.sum(seen), 1.0)
