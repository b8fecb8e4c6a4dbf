"""Set Transformer for flow-cytometry-like samples: a bag of cells -> sick or not."""

import math

import keras
from keras import layers, ops

CELLS, MARKERS, DIM, HEADS, INDUCING = 16, 5, 16, 4, 6


class MAB(layers.Layer):
    """Multihead attention block of Lee et al. (2019)."""

    def __init__(self, **kw):
        super().__init__(**kw)
        self.fc_q = layers.Dense(DIM, name="fc_q")
        self.fc_k = layers.Dense(DIM, name="fc_k")
        self.fc_v = layers.Dense(DIM, name="fc_v")
        self.fc_o = layers.Dense(DIM, name="fc_o")
        self.ln0 = layers.LayerNormalization(epsilon=1e-5, name="ln0")
        self.ln1 = layers.LayerNormalization(epsilon=1e-5, name="ln1")

    def build(self, queries_shape, keys_shape):
        self.fc_q.build(queries_shape)
        self.fc_k.build(keys_shape)
        self.fc_v.build(keys_shape)
        out = (*queries_shape[:-1], DIM)
        self.fc_o.build(out)
        self.ln0.build(out)
        self.ln1.build(out)

    def call(self, queries, keys):
        q, k, v = self.fc_q(queries), self.fc_k(keys), self.fc_v(keys)
        # heads go to the batch axis
        q_ = ops.concatenate(ops.split(q, HEADS, axis=2), axis=0)
        k_ = ops.concatenate(ops.split(k, HEADS, axis=2), axis=0)
        v_ = ops.concatenate(ops.split(v, HEADS, axis=2), axis=0)
        a = ops.softmax(ops.matmul(q_, ops.transpose(k_, (0, 2, 1))) / math.sqrt(DIM), axis=2)
        o = q_ + ops.matmul(a, v_)
        o = ops.concatenate(ops.split(o, HEADS, axis=0), axis=2)
        o = self.ln0(o)
        return self.ln1(o + ops.relu(self.fc_o(o)))


class Learned(layers.Layer):
    """Learned vectors (inducing points or seeds), repeated over the batch."""

    def __init__(self, n, **kw):
        super().__init__(**kw)
        self.n = n

    def build(self, shape):
        self.points = self.add_weight(name="points", shape=(1, self.n, DIM), initializer="glorot_uniform")

    def call(self, like):
        return ops.tile(self.points, (ops.shape(like)[0], 1, 1))


def isab(x, name):
    h = MAB(name=name + "_mab0")(Learned(INDUCING, name=name + "_points")(x), x)
    return MAB(name=name + "_mab1")(x, h)


def build():
    inp = keras.Input((CELLS, MARKERS), name="x")
    x = isab(inp, "isab1")
    x = isab(x, "isab2")
    x = MAB(name="pma")(Learned(2, name="seeds")(x), x)
    x = MAB(name="sab")(x, x)
    x = layers.Flatten()(x)
    return keras.Model(inp, layers.Dense(1, name="logit")(x), name="set_transformer")
