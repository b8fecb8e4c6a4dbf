# Yield of a reaction from the graphs of its reactants and its product
import keras
import numpy as np
from keras import initializers, layers, ops

MAX_ATOMS = 9
ELEMENTS = ["<pad>", "C", "N", "O", "F", "S", "Cl", "Br", "B"]
BONDS = ["none", "single", "double", "triple", "aromatic"]
WIDTH, ROUNDS, FP = 20, 3, 24
COND_SHIFT = np.array([70.0, 0.5, 0.5, 0.5], np.float32)
COND_SCALE = np.array([20.0, 0.29, 0.29, 0.5], np.float32)
wide = initializers.RandomNormal(stddev=0.5)


class MPNN(layers.Layer):
    """Message passing with edges (B, N, N); gated read-out."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.element = layers.Embedding(len(ELEMENTS), WIDTH, embeddings_initializer=wide, name="element")
        self.ring = layers.Embedding(2, WIDTH, embeddings_initializer=wide, name="ring")
        self.bond = layers.Embedding(len(BONDS), WIDTH, embeddings_initializer=wide, name="bond")
        self.sender = layers.Dense(WIDTH, use_bias=False, name="sender")
        self.receiver = layers.Dense(WIDTH, name="receiver")
        self.update = layers.GRUCell(WIDTH, name="update")
        self.gate = layers.Dense(FP, activation="sigmoid", name="gate")
        self.content = layers.Dense(FP, activation="tanh", name="content")

    def build(self, atoms_shape, bonds_shape):
        for l in (self.element, self.ring, self.bond):
            l.build(None)
        for l in (self.sender, self.receiver, self.update, self.content):
            l.build((None, WIDTH))
        self.gate.build((None, 2 * WIDTH))

    def call(self, atoms, bonds):
        real = ops.cast(atoms[..., 0] > 0, self.compute_dtype)[..., None]
        h0 = h = self.element(atoms[..., 0]) + self.ring(atoms[..., 1])
        e = self.bond(bonds)
        linked = ops.cast(ops.not_equal(bonds, 0), self.compute_dtype)
        degree = ops.maximum(ops.sum(linked, axis=-1, keepdims=True), 1.0)
        for _ in range(ROUNDS):
            pre = ops.expand_dims(self.receiver(h), 2) + ops.expand_dims(self.sender(h), 1) + e
            msg = ops.sum(ops.relu(pre) * linked[..., None], axis=2) / degree
            out, _ = self.update(ops.reshape(msg, (-1, WIDTH)), [ops.reshape(h, (-1, WIDTH))])
            h = ops.reshape(out, (-1, MAX_ATOMS, WIDTH))
        g = self.gate(ops.concatenate([h, h0], axis=-1))
        return ops.sum(real * g * self.content(h), axis=1)


def build():
    ra = keras.Input((MAX_ATOMS, 2), dtype="int32", name="r_atoms")
    rb = keras.Input((MAX_ATOMS, MAX_ATOMS), dtype="int32", name="r_bonds")
    pa = keras.Input((MAX_ATOMS, 2), dtype="int32", name="p_atoms")
    pb = keras.Input((MAX_ATOMS, MAX_ATOMS), dtype="int32", name="p_bonds")
    cond = keras.Input((4,), name="conditions")
    encode = MPNN(name="mpnn")
    r, p = encode(ra, rb), encode(pa, pb)
    c = layers.Dense(12, activation="gelu", name="cond")((cond - COND_SHIFT) / COND_SCALE)
    x = layers.Concatenate()([r, p - r, c])
    x = layers.LayerNormalization(name="ln")(x)
    x = layers.Dense(32, activation="gelu", name="hidden")(x)
    y = layers.Dense(1, activation="sigmoid", name="yield_")(x)
    return keras.Model({"r_atoms": ra, "r_bonds": rb, "p_atoms": pa, "p_bonds": pb, "conditions": cond}, y)
