"""Message passing on small padded molecules; the same step is applied several times."""

import keras
from keras import layers, ops

ATOMS = 9
BONDS = 14


class MessagePassing(layers.Layer):
    def __init__(self, dim, **kwargs):
        super().__init__(**kwargs)
        self.dim = dim
        self.message = layers.Dense(dim, activation="tanh", name="message")
        self.update = layers.Dense(dim, activation="tanh", name="update")

    def call(self, h, edges, edge_mask, atom_mask):
        sender, receiver = edges[..., 0], edges[..., 1]
        h_s = ops.take_along_axis(h, sender[..., None], axis=1)
        h_r = ops.take_along_axis(h, receiver[..., None], axis=1)
        m = self.message(ops.concatenate([h_s, h_r], axis=-1)) * edge_mask[..., None]
        to = ops.one_hot(receiver, ATOMS, dtype=m.dtype)
        incoming = ops.einsum("bea,bed->bad", to, m)
        h = h + self.update(ops.concatenate([h, incoming], axis=-1))
        return h * atom_mask[..., None]


class MoleculeNet(keras.Model):
    def __init__(self, dim=10, rounds=3):
        super().__init__(name="molecule_net")
        self.rounds = rounds
        self.kind = layers.Embedding(4, dim, name="kind")
        self.charge = layers.Dense(dim, name="charge")
        self.step = MessagePassing(dim, name="step")
        self.hidden = layers.Dense(16, activation="relu", name="hidden")
        self.out = layers.Dense(1, name="out")

    def call(self, inputs):
        edges = ops.cast(inputs["edges"], "int32")
        edge_mask, atom_mask = inputs["edge_mask"], inputs["atom_mask"]
        h = (self.kind(inputs["kind"]) + self.charge(inputs["charge"])) * atom_mask[..., None]
        for _ in range(self.rounds):
            h = self.step(h, edges, edge_mask, atom_mask)
        pooled = ops.sum(h, axis=1) / ops.sum(atom_mask, axis=1, keepdims=True)
        return self.out(self.hidden(pooled))


def build():
    return MoleculeNet()


def optimizer():
    return keras.optimizers.SGD(0.03, momentum=0.9, global_clipnorm=0.5)
