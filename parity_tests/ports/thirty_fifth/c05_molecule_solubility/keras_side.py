"""Solubility of small molecules: gated message passing over bond types, gated sum readout."""

import keras
from keras import layers, ops

ATOMS, FEATURES, BONDS, HIDDEN, STEPS = 9, 6, 3, 14, 3


class BondMessages(layers.Layer):
    """Sum over bonds of a linear map of the neighbour, one map for each bond type."""

    def __init__(self, units, **kw):
        super().__init__(**kw)
        self.units = units

    def build(self, shapes):
        self.kernel = self.add_weight(
            name="kernel", shape=(BONDS, shapes[0][-1], self.units), initializer="glorot_uniform"
        )
        self.bias = self.add_weight(name="bias", shape=(self.units,), initializer="zeros")

    def call(self, inputs):
        h, adjacency = inputs  # (B, N, H), (B, E, N, N)
        return ops.einsum("benm,bmh,ehk->bnk", adjacency, h, self.kernel) + self.bias


class Update(layers.Layer):
    def __init__(self, units, **kw):
        super().__init__(**kw)
        self.cell = layers.GRUCell(units, name="cell")

    def build(self, shapes):
        self.cell.build((None, shapes[0][-1]))

    def call(self, inputs):
        message, h = inputs
        n, width = h.shape[1], h.shape[2]
        new, _ = self.cell(ops.reshape(message, (-1, width)), [ops.reshape(h, (-1, width))])
        return ops.reshape(new, (-1, n, width))


class MaskedSum(layers.Layer):
    def call(self, inputs):
        gate, value, mask = inputs
        return ops.sum(gate * value * mask[..., None], axis=1)


def build():
    atoms = keras.Input((ATOMS, FEATURES), name="atoms")
    bonds = keras.Input((BONDS, ATOMS, ATOMS), name="bonds")
    real = keras.Input((ATOMS,), name="real")
    h0 = h = layers.Dense(HIDDEN, activation="tanh", name="embed")(atoms)
    messages, update = BondMessages(HIDDEN, name="messages"), Update(HIDDEN, name="update")
    for _ in range(STEPS):  # the same weights in each round
        h = update([messages([h, bonds]), h])
    both = layers.Concatenate(name="both")([h, h0])
    gate = layers.Dense(HIDDEN, activation="sigmoid", name="gate")(both)
    value = layers.Dense(HIDDEN, activation="tanh", name="value")(h)
    g = MaskedSum(name="readout")([gate, value, real])
    g = layers.Dense(10, activation="relu", name="fc")(g)
    out = layers.Dense(1, name="logS")(g)
    return keras.Model([atoms, bonds, real], out, name="ggnn")
