"""DCN-v2 (mixture of low-rank cross layers) beside a deep tower, for clicks."""

import keras
import numpy as np
from keras import ops

BUCKETS = np.array([50, 40, 30, 20, 12, 8], dtype="int32")  # per categorical column; id -1: missing
DIMS = [8, 8, 6, 6, 4, 4]
COUNT_SCALE = np.array([3.0, 2.0, 4.0, 1.0, 2.5, 1.5], dtype="float32")


class HashedFields(keras.layers.Layer):
    def __init__(self, **kw):
        super().__init__(**kw)
        self.tables = [
            keras.layers.Embedding(int(b), d, name=f"field{i}") for i, (b, d) in enumerate(zip(BUCKETS, DIMS))
        ]

    def call(self, ids):
        rows = ops.mod(ids, BUCKETS)
        return ops.concatenate([t(rows[:, i]) for i, t in enumerate(self.tables)], axis=-1)


class CrossMix(keras.layers.Layer):
    """x_{l+1} = x_l + sum_e g_e(x_l) x_0 * (U_e tanh(C_e tanh(V_e' x_l)) + b)"""

    def __init__(self, experts=3, rank=6, **kw):
        super().__init__(**kw)
        self.experts, self.rank = experts, rank

    def build(self, shapes):
        d = shapes[0][-1]
        e, r = self.experts, self.rank
        small = lambda shape, dtype: keras.random.normal(shape, stddev=0.4, dtype=dtype)
        self.V = self.add_weight(shape=(e, d, r), initializer=small, name="V")
        self.C = self.add_weight(shape=(e, r, r), initializer=small, name="C")
        self.U = self.add_weight(shape=(e, r, d), initializer=small, name="U")
        self.bias = self.add_weight(shape=(d,), initializer="zeros", name="bias")
        self.gate = self.add_weight(
            shape=(d, e), initializer=keras.initializers.RandomNormal(stddev=0.6), name="gate"
        )

    def call(self, pair):
        x0, x = pair
        h = ops.tanh(ops.einsum("bd,edr->ber", x, self.V))
        h = ops.tanh(ops.einsum("ber,ers->bes", h, self.C))
        h = ops.einsum("ber,erd->bed", h, self.U) + self.bias
        g = ops.softmax(ops.matmul(x, self.gate), axis=-1)
        return x + x0 * ops.sum(ops.expand_dims(g, -1) * h, axis=1)


def build():
    counts = keras.Input((6,), name="counts")
    ids = keras.Input((6,), dtype="int32", name="ids")
    dense = keras.layers.Lambda(lambda c: ops.log1p(ops.maximum(c, 0.0)) / COUNT_SCALE, name="log_counts")(
        counts
    )
    dense = keras.layers.LayerNormalization(epsilon=1e-4, name="dense_norm")(dense)
    emb = HashedFields(name="fields")(ids)
    x0 = keras.layers.Concatenate(name="x0")([dense, emb])
    x = x0
    for i in range(3):
        x = CrossMix(name=f"cross{i}")([x0, x])
    h = x0
    for i, w in enumerate((48, 24)):
        h = keras.layers.Dense(w, name=f"deep{i}")(h)
        h = keras.layers.PReLU(alpha_initializer=keras.initializers.Constant(0.25), name=f"prelu{i}")(h)
    out = keras.layers.Dense(1, name="click")(keras.layers.Concatenate()([x, h]))
    return keras.Model([counts, ids], out, name="dcn_mix")
