"""Small molecules, padded to nine atoms: graph convolutions, gated attention readout, two heads."""

import keras
from keras import layers, ops

KINDS = 6


class OneHotAtoms(layers.Layer):
    def call(self, atoms):
        return ops.one_hot(atoms, KINDS, dtype=self.compute_dtype)


class NodeMask(layers.Layer):
    def call(self, atoms):
        return ops.expand_dims(ops.cast(ops.not_equal(atoms, 0), self.compute_dtype), -1)


class GraphConv(layers.Layer):
    """h' = act(h W_self + D^-1/2 (A + I) D^-1/2 h W_neigh + b), padding kept at zero"""

    def __init__(self, units, activation=None, **kw):
        super().__init__(**kw)
        self.units = units
        self.activation = keras.activations.get(activation)

    def build(self, shapes):
        dim = shapes[0][-1]
        self.w_self = self.add_weight(shape=(dim, self.units), initializer="he_normal", name="w_self")
        self.w_neigh = self.add_weight(shape=(dim, self.units), initializer="he_normal", name="w_neigh")
        self.b = self.add_weight(shape=(self.units,), initializer="zeros", name="b")

    def call(self, inputs):
        h, bonds, mask = inputs
        a = bonds + ops.eye(bonds.shape[-1], dtype=bonds.dtype) * mask
        degree = ops.sum(a, axis=-1, keepdims=True)
        inv = ops.where(degree > 0, ops.rsqrt(ops.maximum(degree, 1e-9)), ops.zeros_like(degree))
        a = a * inv * ops.transpose(inv, (0, 2, 1))
        out = ops.matmul(h, self.w_self) + ops.matmul(a, ops.matmul(h, self.w_neigh)) + self.b
        return self.activation(out) * mask


class AttentionReadout(layers.Layer):
    def __init__(self, units, **kw):
        super().__init__(**kw)
        self.gate = layers.Dense(1)
        self.value = layers.Dense(units, activation="tanh")

    def build(self, shapes):
        self.gate.build(shapes[0])
        self.value.build(shapes[0])

    def call(self, inputs):
        h, mask = inputs
        score = self.gate(h) + (1.0 - mask) * -1e9
        return ops.sum(ops.softmax(score, axis=1) * self.value(h), axis=1)


def build():
    atoms = keras.Input((9,), dtype="int32", name="atoms")
    bonds = keras.Input((9, 9), name="bonds")
    mask = NodeMask()(atoms)
    h = OneHotAtoms()(atoms)
    h = GraphConv(16, "softplus", name="conv1")([h, bonds, mask])
    skip = h
    h = GraphConv(16, "softplus", name="conv2")([h, bonds, mask])
    h = layers.LayerNormalization(name="norm")(h + skip)
    g = AttentionReadout(20, name="readout")([h, mask])
    out = {"energy": layers.Dense(1, name="energy")(g), "toxic": layers.Dense(1, name="toxic")(g)}
    return keras.Model([atoms, bonds], out)
