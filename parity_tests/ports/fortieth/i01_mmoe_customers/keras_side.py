"""Customer value model: one regression, one binary and one three-class task (CGC / MMoE)."""

import keras
import numpy as np
from keras import layers, ops

CARD = np.array([12, 8, 20], "int32")  # the last id of each table is the "other" bucket
MEAN = np.array([0, 45, 5, 1, 120, 0, 4, 20, 0], "float32")
VAR = np.array([1, 144, 9, 0.25, 1600, 1, 4, 49, 1], "float32")
TASKS = ("spend", "churn", "tier")


class LogVars(layers.Layer):
    """Appends the (learned) log variances of the tasks to the predictions."""

    def build(self, shape):
        self.s = self.add_weight(
            name="log_var",
            shape=(len(TASKS),),
            initializer=lambda s, dtype=None: ops.convert_to_tensor(np.array([0.3, -0.2, 0.1], "float32")),
        )

    def call(self, x):
        s = ops.broadcast_to(self.s[None], (ops.shape(x)[0], len(TASKS)))
        return ops.concatenate([x, s], -1)


def expert(x, name):
    x = layers.Dense(20, activation="swish", name=f"{name}_in")(x)
    return layers.Dense(12, activation="relu", name=f"{name}_out")(x)


def build():
    num = keras.Input((9,), name="num")
    cat = keras.Input((3,), dtype="int32", name="cat")
    parts = [layers.Normalization(mean=MEAN, variance=VAR, name="standardise")(num)]
    ids = ops.minimum(cat, CARD - 1)
    for i, c in enumerate(CARD):
        parts.append(
            layers.Embedding(
                int(c),
                4,
                embeddings_initializer=keras.initializers.RandomNormal(stddev=0.5),
                name=f"table_{i}",
            )(ids[:, i])
        )
    x = layers.Concatenate()(parts)
    shared = [expert(x, f"shared{i}") for i in range(2)]
    outs = []
    for t, k in zip(TASKS, (1, 1, 3)):
        bag = ops.stack([expert(x, f"{t}_expert"), *shared], 1)
        gate = layers.Dense(3, use_bias=False, activation="softmax", name=f"{t}_gate")(x)
        mixed = ops.einsum("be,bed->bd", gate, bag)
        h = layers.Dense(8, activation="tanh", name=f"{t}_tower")(mixed)
        outs.append(layers.Dense(k, name=t)(h))
    return keras.Model([num, cat], LogVars(name="uncertainty")(layers.Concatenate()(outs)))


def loss(y, p):
    """Kendall et al.: 1/2 e^-s for the Gaussian, e^-s for the categorical likelihoods."""
    s = p[:, 5:]
    reg = ops.square(y[:, 0] - p[:, 0])
    churn = ops.softplus(p[:, 1]) - y[:, 1] * p[:, 1]
    tier = ops.logsumexp(p[:, 2:5], -1) - ops.sum(ops.one_hot(ops.cast(y[:, 2], "int32"), 3) * p[:, 2:5], -1)
    return (
        0.5 * ops.exp(-s[:, 0]) * reg
        + ops.exp(-s[:, 1]) * churn
        + ops.exp(-s[:, 2]) * tier
        + 0.5 * ops.sum(s, -1)
    )
