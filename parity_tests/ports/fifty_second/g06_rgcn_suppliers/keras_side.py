"""Relational graph network over the suppliers of a firm (node 0): does a delivery fail in the quarter?"""

import keras
from keras import layers, ops

NODES, RELATIONS, BASES = 12, 3, 2
SECTORS = 6


class RelationalConv(layers.Layer):
    """R-GCN with basis decomposition; messages are averages weighted by the shares of each relation."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, shape):
        d = shape[0][-1] if isinstance(shape[0], (list, tuple)) else shape[-1]
        self.bases = self.add_weight(shape=(BASES, d, self.units), initializer="glorot_uniform", name="bases")
        self.mix = self.add_weight(
            shape=(RELATIONS, BASES), initializer=keras.initializers.RandomNormal(stddev=0.7), name="mix"
        )
        self.own = self.add_weight(shape=(d, self.units), initializer="glorot_uniform", name="own")
        self.bias = self.add_weight(shape=(self.units,), initializer="zeros", name="bias")

    def call(self, inputs):
        h, shares = inputs
        total = ops.sum(shares, axis=-1, keepdims=True)
        weights = ops.divide_no_nan(shares, total)
        kernels = ops.einsum("rb,bdu->rdu", self.mix, self.bases)
        messages = ops.einsum("nrij,njd->nrid", weights, h)
        return ops.einsum("nrid,rdu->niu", messages, kernels) + ops.matmul(h, self.own) + self.bias


class Readout(layers.Layer):
    """Gated sum over the firms present, beside the state of node 0."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.gate = layers.Dense(units, activation="sigmoid", name="gate")
        self.value = layers.Dense(units, activation="tanh", name="value")

    def build(self, shape):
        self.gate.build(shape[0])
        self.value.build(shape[0])

    def call(self, inputs):
        h, present = inputs
        pooled = ops.sum(present * self.gate(h) * self.value(h), axis=1) / ops.sqrt(ops.sum(present, axis=1))
        return ops.concatenate([h[:, 0], pooled], axis=-1)


class Present(layers.Layer):
    def call(self, sector):
        return ops.expand_dims(ops.cast(sector > 0, self.compute_dtype), -1)


def build():
    shares = keras.Input((RELATIONS, NODES, NODES), name="shares")
    firms = keras.Input((NODES, 5), name="firms")
    sector = keras.Input((NODES,), dtype="int32", name="sector")

    present = Present()(sector)
    h = layers.Concatenate()([firms, layers.Embedding(SECTORS + 1, 6, name="sector_vectors")(sector)])
    h = layers.Dense(20, activation="elu", name="project")(h)
    for i in range(3):
        new = RelationalConv(20, name=f"relational_{i}")([h, shares])
        new = layers.LayerNormalization(name=f"norm_{i}")(new)
        new = layers.Activation("elu")(new)
        h = layers.Add()([h, layers.Multiply()([new, present])])
    x = Readout(16, name="readout")([h, present])
    x = layers.Dense(16, activation="elu", name="hidden")(x)
    return keras.Model({"shares": shares, "firms": firms, "sector": sector}, layers.Dense(1, name="risk")(x))
