"""Spend in the restaurant of hotel guests: FiBiNET (SENet and bilinear interactions), Tweedie loss."""

import itertools

import keras
from keras import layers, ops

CATEGORIES = {"country": 14, "channel": 5, "room": 7, "meal": 4, "segment": 6, "deposit": 3}
EDGES = {
    "lead_days": [1.0, 3.0, 7.0, 14.0, 30.0, 60.0, 120.0],
    "nights": [2.0, 3.0, 5.0, 7.0, 14.0],
    "guests": [2.0, 3.0, 4.0],
    "rate": [50.0, 75.0, 100.0, 150.0, 200.0],
}
DIM = 6
POWER = 1.5


def table(size, name):
    return layers.Embedding(
        size, DIM, embeddings_initializer=keras.initializers.RandomNormal(stddev=0.3), name=name
    )


class SENet(layers.Layer):
    def __init__(self, fields, reduction, **kw):
        super().__init__(**kw)
        self.squeeze = layers.Dense(max(1, fields // reduction), activation="relu", use_bias=False)
        self.excite = layers.Dense(fields, activation="sigmoid", use_bias=False)

    def call(self, e):
        a = self.excite(self.squeeze(ops.mean(e, axis=-1)))
        return e * ops.expand_dims(a, -1)


class Bilinear(layers.Layer):
    """p_ij = (v_i W_i) * v_j, one W for each left field."""

    def __init__(self, fields, **kw):
        super().__init__(**kw)
        self.pairs = list(itertools.combinations(range(fields), 2))
        self.maps = [layers.Dense(DIM, use_bias=False, name=f"map{i}") for i in range(fields - 1)]

    def call(self, e):
        left = [m(e[:, i]) for i, m in enumerate(self.maps)]
        return ops.concatenate([left[i] * e[:, j] for i, j in self.pairs], axis=-1)


def build():
    cats = keras.Input((len(CATEGORIES),), dtype="int32", name="cats")
    nums = keras.Input((len(EDGES),), name="nums")
    embedded = []
    for i, (name, size) in enumerate(CATEGORIES.items()):
        embedded.append(table(size, f"emb_{name}")(cats[:, i]))
    for i, (name, edges) in enumerate(EDGES.items()):
        bucket = layers.Discretization(bin_boundaries=edges, name=f"bucket_{name}")(nums[:, i])
        embedded.append(table(len(edges) + 1, f"emb_{name}")(bucket))
    e = layers.Lambda(lambda t: ops.stack(t, axis=1), name="stack")(embedded)
    fields = len(embedded)
    both = layers.Concatenate()(
        [
            Bilinear(fields, name="plain")(e),
            Bilinear(fields, name="weighted")(SENet(fields, 3, name="senet")(e)),
        ]
    )
    x = layers.Dense(24, activation="relu", name="deep1")(both)
    x = layers.Dense(12, activation="relu", name="deep2")(x)
    x = layers.Concatenate()([x, layers.Lambda(lambda t: ops.log1p(t), name="logs")(nums)])
    return keras.Model([cats, nums], layers.Dense(1, name="log_mean")(x), name="hotelspend")


def tweedie(targets, outputs):
    y = ops.cast(ops.reshape(targets, (-1,)), outputs.dtype)
    log_mu = outputs[:, 0]
    return ops.exp((2.0 - POWER) * log_mu) / (2.0 - POWER) - y * ops.exp((1.0 - POWER) * log_mu) / (
        1.0 - POWER
    )
