"""Gated graph network on small molecules; atoms and bonds are codes, 0 is padding or no bond."""

import keras
from keras import layers, ops

ATOMS, BOND_TYPES = 7, 4


class BondMessages(layers.Layer):
    """Each bond type has a matrix of its own; an atom sums what its neighbours send."""

    def build(self, states_shape, bonds_shape):
        width = states_shape[-1]
        self.matrices = self.add_weight(
            shape=(BOND_TYPES, width, width), initializer="orthogonal", name="matrices"
        )

    def call(self, states, bonds):
        # Bond type 0 is "none", one_hot drops it.
        kinds = ops.one_hot(bonds - 1, BOND_TYPES, dtype=states.dtype)
        sent = ops.einsum("bjd,kde->bjke", states, self.matrices)
        return ops.einsum("bijk,bjke->bie", kinds, sent)


class GatedGraph(layers.Layer):
    def __init__(self, width, rounds, **kwargs):
        super().__init__(**kwargs)
        self.width, self.rounds = width, rounds
        self.embed = layers.Embedding(ATOMS, width)
        self.messages = BondMessages()
        self.cell = layers.GRUCell(width)

    def build(self, atoms_shape, bonds_shape):
        states_shape = (*atoms_shape, self.width)
        self.embed.build(atoms_shape)
        self.messages.build(states_shape, bonds_shape)
        self.cell.build((None, self.width))

    def call(self, atoms, bonds):
        states = self.embed(atoms)
        count = atoms.shape[1]
        for _ in range(self.rounds):
            messages = self.messages(states, bonds)
            flat, _ = self.cell(
                ops.reshape(messages, (-1, self.width)), [ops.reshape(states, (-1, self.width))]
            )
            states = ops.reshape(flat, (-1, count, self.width))
        return states

    def compute_output_shape(self, atoms_shape, bonds_shape):
        return (*atoms_shape, self.width)


def build():
    atoms = keras.Input((6,), dtype="int32", name="atoms")
    bonds = keras.Input((6, 6), dtype="int32", name="bonds")
    states = GatedGraph(10, rounds=3, name="graph")(atoms, bonds)
    gate = layers.Dense(12, activation="sigmoid", name="gate")(states)
    value = layers.Dense(12, activation="tanh", name="value")(states)
    real = ops.expand_dims(ops.cast(ops.not_equal(atoms, 0), states.dtype), -1)
    molecule = ops.sum(gate * value * real, axis=1)
    energy = layers.Dense(1, name="energy")(molecule)
    dipole = layers.Dense(3, name="dipole")(molecule)
    return keras.Model([atoms, bonds], {"energy": energy, "dipole": dipole})


def loss(y_true, y_pred):
    return ops.mean(ops.square(y_true - y_pred), axis=-1)
