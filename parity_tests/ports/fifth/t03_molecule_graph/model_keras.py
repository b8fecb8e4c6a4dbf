"""Two properties of a small molecule from its padded graph: attention along bonds, gated readout."""

import keras
from keras import layers, ops

ATOMS, FEATURES, BONDS, HEADS, SIZE = 12, 6, 4, 4, 8


class BondAttention(layers.Layer):
    """GATv1 with a bias of the bond's kind on the score."""

    def __init__(self, heads=HEADS, size=SIZE, **kwargs):
        super().__init__(**kwargs)
        self.heads, self.size = heads, size

    def build(self, nodes_shape, bonds_shape):
        self.kernel = self.add_weight(shape=(nodes_shape[-1], self.heads, self.size), name="kernel")
        self.sender = self.add_weight(shape=(self.size, self.heads), name="sender")
        self.receiver = self.add_weight(shape=(self.size, self.heads), name="receiver")
        self.kind = self.add_weight(shape=(BONDS, self.heads), initializer="zeros", name="kind")
        self.bias = self.add_weight(shape=(self.heads, self.size), initializer="zeros", name="bias")

    def call(self, nodes, bonds):
        h = ops.einsum("bnf,fhd->bnhd", nodes, self.kernel)
        to = ops.einsum("bnhd,dh->bnh", h, self.receiver)
        of = ops.einsum("bnhd,dh->bnh", h, self.sender)
        score = ops.leaky_relu(to[:, :, None] + of[:, None], negative_slope=0.2)
        score = score + ops.take(self.kind, bonds, axis=0)
        linked = ops.expand_dims(bonds > 0, -1)
        score = ops.where(linked, score, ops.cast(-1e9, score.dtype))
        weights = ops.softmax(score, axis=2) * ops.cast(linked, score.dtype)
        out = ops.einsum("bijh,bjhd->bihd", weights, h) + self.bias
        return ops.reshape(out, (-1, out.shape[1], self.heads * self.size))


class Readout(layers.Layer):
    def __init__(self, size, **kwargs):
        super().__init__(**kwargs)
        self.gate = layers.Dense(1, activation="sigmoid", name="gate")
        self.value = layers.Dense(size, activation="tanh", name="value")

    def call(self, nodes, real):
        real = ops.cast(real, nodes.dtype)[..., None]
        total = ops.sum(self.gate(nodes) * self.value(nodes) * real, axis=1)
        peak = ops.max(nodes - 1e9 * (1 - real), axis=1)
        return ops.concatenate([total, peak], axis=-1)


def build():
    atoms = keras.Input((ATOMS, FEATURES), name="atoms")
    bonds = keras.Input((ATOMS, ATOMS), dtype="int32", name="bonds")  # 0 none, 1 itself, 2 single, 3 double
    real = ops.any(bonds > 0, axis=-1)
    x = layers.Activation("elu")(BondAttention(name="first")(atoms, bonds))
    y = layers.Activation("elu")(BondAttention(name="second")(x, bonds))
    x = layers.LayerNormalization(name="norm")(x + y)
    x = Readout(24, name="readout")(x, real)
    return keras.Model([atoms, bonds], layers.Dense(2, name="properties")(x))
