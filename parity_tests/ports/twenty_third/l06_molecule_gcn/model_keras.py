"""Solubility of small molecules: graph convolutions on padded graphs.

atoms (N, 12, 7) features, bonds (N, 12, 12) symmetric bond orders without self
loops, present (N, 12) one for real atoms. Padded atoms have no bonds.
"""

import keras
from keras import layers, ops

MAX_ATOMS, N_FEATURES = 12, 7


class GraphConv(layers.Layer):
    """act(D^-1/2 (A + I) D^-1/2 X W + b)"""

    def __init__(self, units, activation="relu", **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.activation = keras.activations.get(activation)

    def build(self, nodes_shape, adjacency_shape=None):
        self.kernel = self.add_weight(
            name="kernel", shape=(nodes_shape[-1], self.units), initializer="glorot_uniform"
        )
        self.bias = self.add_weight(name="bias", shape=(self.units,), initializer="zeros")
        super().build(nodes_shape)

    def call(self, nodes, adjacency):
        a = adjacency + ops.eye(MAX_ATOMS, dtype=adjacency.dtype)
        inv_sqrt = 1.0 / ops.sqrt(ops.sum(a, axis=-1))
        a = inv_sqrt[:, :, None] * a * inv_sqrt[:, None, :]
        out = ops.einsum("nij,njf->nif", a, ops.matmul(nodes, self.kernel))
        return self.activation(out + self.bias)


class GatedReadout(layers.Layer):
    """sum over atoms of sigmoid(gate(x)) * tanh(value(x))"""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.gate = layers.Dense(units, activation="sigmoid", name="gate")
        self.value = layers.Dense(units, activation="tanh", name="value")

    def build(self, nodes_shape, present_shape=None):
        self.gate.build(nodes_shape)
        self.value.build(nodes_shape)
        super().build(nodes_shape)

    def call(self, nodes, present):
        return ops.sum(self.gate(nodes) * self.value(nodes) * present[..., None], axis=1)


def build():
    atoms = keras.Input((MAX_ATOMS, N_FEATURES), name="atoms")
    bonds = keras.Input((MAX_ATOMS, MAX_ATOMS), name="bonds")
    present = keras.Input((MAX_ATOMS,), name="present")
    h1 = GraphConv(18, name="conv1")(atoms, bonds)
    h2 = GraphConv(18, name="conv2")(h1, bonds)
    h = layers.Add(name="skip")([h1, h2])
    h = GraphConv(14, activation="tanh", name="conv3")(h, bonds)
    h = layers.Dropout(0.15, name="drop")(h)
    h = layers.Concatenate(name="with_atoms")([h, atoms])
    g = GatedReadout(16, name="readout")(h, present)
    g = layers.Dense(12, activation="selu", name="hidden")(g)
    return keras.Model([atoms, bonds, present], layers.Dense(1, name="logS")(g), name="molecule_gcn")
