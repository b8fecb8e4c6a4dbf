"""Directed message passing over bonds, for oxidation and reduction potentials of molecules.

Each bond is two directed edges src -> dst, `rev` is the index of the opposite one; absent edges
have -1, absent atoms have no features. Potentials that were not measured are NaN.
"""

import keras
from keras import layers, ops

ATOMS, EDGES, ATOM_FEATURES, BOND_FEATURES = 12, 26, 10, 5
UNITS, STEPS = 40, 3


class EdgeMessages(layers.Layer):
    """Messages live on directed edges; an edge does not hear its own reverse."""

    def __init__(self, units, steps, **kwargs):
        super().__init__(**kwargs)
        self.steps = steps
        self.w_input = layers.Dense(units, use_bias=False, name="w_input")
        self.w_message = layers.Dense(units, use_bias=False, name="w_message")
        self.w_atom = layers.Dense(units, activation="silu", name="w_atom")

    def call(self, atoms, bonds, dst, rev, src):
        at_src = ops.one_hot(src, ATOMS, dtype=bonds.dtype)  # rows of zeros where -1
        at_dst = ops.one_hot(dst, ATOMS, dtype=bonds.dtype)
        opposite = ops.one_hot(rev, EDGES, dtype=bonds.dtype)
        present = ops.expand_dims(ops.cast(src >= 0, bonds.dtype), -1)

        first = self.w_input(ops.concatenate([ops.matmul(at_src, atoms), bonds], -1))
        h = ops.silu(first) * present
        for _ in range(self.steps):
            incoming = ops.einsum("bea,beh->bah", at_dst, h)
            message = ops.matmul(at_src, incoming) - ops.matmul(opposite, h)
            h = ops.silu(first + self.w_message(message)) * present
        incoming = ops.einsum("bea,beh->bah", at_dst, h)
        return self.w_atom(ops.concatenate([atoms, incoming], -1))


class PowerReadout(layers.Layer):
    """Sum of the atoms that are there over the square root of their number."""

    def call(self, x, atoms):
        there = ops.cast(ops.any(ops.not_equal(atoms, 0.0), axis=-1), x.dtype)
        total = ops.einsum("bah,ba->bh", x, there)
        return total / ops.sqrt(ops.maximum(ops.sum(there, -1, keepdims=True), 1.0))


def build():
    atoms = keras.Input((ATOMS, ATOM_FEATURES), name="atoms")
    bonds = keras.Input((EDGES, BOND_FEATURES), name="bonds")
    dst = keras.Input((EDGES,), dtype="int32", name="dst")
    rev = keras.Input((EDGES,), dtype="int32", name="rev")
    src = keras.Input((EDGES,), dtype="int32", name="src")
    x = EdgeMessages(UNITS, STEPS, name="messages")(atoms, bonds, dst, rev, src)
    x = PowerReadout(name="readout")(x, atoms)
    x = layers.Dense(UNITS, activation="silu", name="hidden")(x)
    y = layers.Dense(2, name="potentials")(x)
    return keras.Model({"atoms": atoms, "bonds": bonds, "dst": dst, "rev": rev, "src": src}, y)


def measured_mse(targets, outputs):
    known = ops.logical_not(ops.isnan(targets))
    error = ops.where(known, targets - outputs, 0.0)
    return ops.sum(ops.square(error)) / ops.maximum(ops.sum(ops.cast(known, outputs.dtype)), 1.0)
