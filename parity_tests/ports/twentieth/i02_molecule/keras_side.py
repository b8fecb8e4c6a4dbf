"""Gated graph network on dense bonds: 3 rounds with the same weights, gated sum over the atoms."""

import keras
from keras import layers, ops

TYPES, WIDTH, ROUNDS = 3, 16, 3


class GatedGraph(keras.Model):
    def __init__(self):
        super().__init__()
        self.embed = layers.Embedding(8, WIDTH)
        self.message = [layers.Dense(WIDTH, use_bias=False, name=f"message_{t}") for t in range(TYPES)]
        self.update = layers.GRUCell(WIDTH)
        self.gate = layers.Dense(WIDTH, activation="sigmoid")
        self.value = layers.Dense(WIDTH, activation="tanh")
        self.out = layers.Dense(1)

    def call(self, inputs):
        atoms, bonds = inputs["atoms"], inputs["bonds"]
        first = h = self.embed(atoms)
        size = atoms.shape[1]
        for _ in range(ROUNDS):
            m = 0.0
            for t, dense in enumerate(self.message):
                links = ops.cast(ops.equal(bonds, t + 1), h.dtype)
                m = m + ops.matmul(links, dense(h))
            flat, _ = self.update(ops.reshape(m, (-1, WIDTH)), [ops.reshape(h, (-1, WIDTH))])
            h = ops.reshape(flat, (-1, size, WIDTH))
        real = ops.expand_dims(ops.cast(atoms > 0, h.dtype), -1)
        gated = self.gate(ops.concatenate([h, first], -1)) * self.value(h)
        return self.out(ops.sum(gated * real, axis=1))


def build():
    return GatedGraph()
