"""MEGNet on small alloy cells: bonds, atoms and a global state update one another."""

import keras
import numpy as np
from keras import layers, ops

MAX_ATOMS = 10
MAX_BONDS = 26
SPECIES = 9
WIDTH = 12
CENTRES = np.linspace(1.8, 4.6, 10).astype(np.float32)
SPREAD = 0.35


class BondBasis(layers.Layer):
    def call(self, dist):
        gap = dist[..., None] - CENTRES
        return ops.exp(-ops.square(gap / SPREAD))


def two_dense(name, first, second):
    return keras.Sequential(
        [
            layers.Dense(first, activation="softplus", name="inner"),
            layers.Dense(second, activation="softplus", name="outer"),
        ],
        name=name,
    )


class MegnetBlock(layers.Layer):
    def __init__(self, width, hidden, **kwargs):
        super().__init__(**kwargs)
        self.pre_bond = two_dense("pre_bond", hidden, width)
        self.pre_atom = two_dense("pre_atom", hidden, width)
        self.pre_state = two_dense("pre_state", hidden, width)
        self.phi_bond = two_dense("phi_bond", hidden, width)
        self.phi_atom = two_dense("phi_atom", hidden, width)
        self.phi_state = two_dense("phi_state", hidden, width)

    def call(self, bonds, atoms, state, src, dst, bond_mask, atom_mask):
        e = self.pre_bond(bonds)
        v = self.pre_atom(atoms)
        u = self.pre_state(state)

        v_src = ops.take_along_axis(v, src[:, :, None], axis=1)
        v_dst = ops.take_along_axis(v, dst[:, :, None], axis=1)
        u_bond = ops.repeat(u[:, None, :], MAX_BONDS, axis=1)
        e_new = self.phi_bond(ops.concatenate([v_src, v_dst, e, u_bond], axis=-1))

        landing = ops.one_hot(dst, MAX_ATOMS) * bond_mask[..., None]
        degree = ops.maximum(ops.sum(landing, axis=1), 1.0)
        e_atom = ops.matmul(ops.transpose(landing, (0, 2, 1)), e_new) / degree[..., None]
        u_atom = ops.repeat(u[:, None, :], MAX_ATOMS, axis=1)
        v_new = self.phi_atom(ops.concatenate([e_atom, v, u_atom], axis=-1))

        e_all = ops.sum(e_new * bond_mask[..., None], axis=1) / ops.sum(bond_mask, axis=1, keepdims=True)
        v_all = ops.sum(v_new * atom_mask[..., None], axis=1) / ops.sum(atom_mask, axis=1, keepdims=True)
        u_new = self.phi_state(ops.concatenate([e_all, v_all, u], axis=-1))
        return bonds + e_new, atoms + v_new, state + u_new


class Set2Set(layers.Layer):
    def __init__(self, width, rounds=3, **kwargs):
        super().__init__(**kwargs)
        self.width = width
        self.rounds = rounds
        self.cell = layers.LSTMCell(width, name="cell")

    def build(self, items_shape, live_shape):
        self.cell.build((items_shape[0], 2 * self.width))
        self.built = True

    def call(self, items, live):
        h = ops.zeros_like(items[:, 0, :])
        c = h
        q_star = ops.concatenate([h, h], axis=-1)
        for _ in range(self.rounds):
            q, (h, c) = self.cell(q_star, [h, c])
            score = ops.einsum("bnd,bd->bn", items, q)
            score = ops.where(live > 0, score, -1e9)
            weight = ops.softmax(score, axis=-1)
            read = ops.einsum("bn,bnd->bd", weight, items)
            q_star = ops.concatenate([q, read], axis=-1)
        return q_star


def build():
    species = keras.Input((MAX_ATOMS,), dtype="int32", name="species")
    src = keras.Input((MAX_BONDS,), dtype="int32", name="src")
    dst = keras.Input((MAX_BONDS,), dtype="int32", name="dst")
    dist = keras.Input((MAX_BONDS,), name="dist")
    bond_mask = keras.Input((MAX_BONDS,), name="bond_mask")
    ambient = keras.Input((2,), name="ambient")

    atom_mask = ops.cast(ops.not_equal(species, 0), keras.config.floatx())
    atoms = layers.Embedding(SPECIES, WIDTH, name="species_table")(species)
    bonds = layers.Dense(WIDTH, name="bond_in")(BondBasis(name="basis")(dist))
    state = layers.Dense(WIDTH, name="state_in")(ambient)
    for i in range(2):
        bonds, atoms, state = MegnetBlock(WIDTH, 16, name=f"block_{i}")(
            bonds, atoms, state, src, dst, bond_mask, atom_mask
        )

    atom_read = Set2Set(WIDTH, name="read_atoms")(atoms, atom_mask)
    bond_read = Set2Set(WIDTH, name="read_bonds")(bonds, bond_mask)
    x = layers.Concatenate()([atom_read, bond_read, state])
    x = layers.Dense(20, activation="softplus", name="head_0")(x)
    x = layers.Dense(12, activation="softplus", name="head_1")(x)
    energy = layers.Dense(1, name="energy")(x)
    return keras.Model([species, src, dst, dist, bond_mask, ambient], energy, name="megnet")
