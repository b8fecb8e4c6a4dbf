"""Messages along directed bonds, summed per atom by segments; a property of the whole molecule."""

import keras
import tensorflow as tf
from keras import layers, ops


class MessagePassing(layers.Layer):
    def __init__(self, width, **kwargs):
        super().__init__(**kwargs)
        self.from_atom = layers.Dense(width, use_bias=False, name="from_atom")
        self.from_bond = layers.Dense(width, name="from_bond")
        self.own = layers.Dense(width, name="own")

    def build(self, atoms_shape, bonds_shape, senders_shape, receivers_shape, exists_shape):
        self.from_atom.build(atoms_shape)
        self.from_bond.build(bonds_shape)
        self.own.build(atoms_shape)

    def call(self, atoms, bonds, senders, receivers, exists):
        shape = ops.shape(atoms)
        count = shape[0] * shape[1]
        offset = ops.arange(shape[0], dtype="int32")[:, None] * shape[1]
        source = ops.reshape(senders + offset, (-1,))
        target = ops.reshape(receivers + offset, (-1,))
        exists = ops.reshape(exists, (-1,))
        # every atom is its own neighbour, too
        degree = 1.0 + tf.math.unsorted_segment_sum(exists, target, count)
        flat = ops.reshape(atoms, (-1, atoms.shape[-1]))
        bonds = ops.reshape(bonds, (-1, bonds.shape[-1]))
        message = ops.relu(self.from_atom(ops.take(flat, source, axis=0)) + self.from_bond(bonds))
        norm = exists * ops.rsqrt(ops.take(degree, source) * ops.take(degree, target))
        total = tf.math.unsorted_segment_sum(norm[:, None] * message, target, count)
        new = ops.relu(total + self.own(flat) / degree[:, None])
        return ops.reshape(new, (-1, shape[1], self.own.units))


def build(atoms=10, bonds=18, width=24):
    atom = keras.Input((atoms, 5), name="atom")
    bond = keras.Input((bonds, 3), name="bond")
    senders = keras.Input((bonds,), dtype="int32", name="senders")
    receivers = keras.Input((bonds,), dtype="int32", name="receivers")
    exists = keras.Input((bonds,), name="exists")
    h = layers.Dense(width, activation="relu", name="embed")(atom)
    for i in range(3):
        h = MessagePassing(width, name=f"messages_{i}")(h, bond, senders, receivers, exists)
    gate = layers.Dense(width, activation="sigmoid", name="gate")(h)
    value = layers.Dense(width, name="value")(h)
    g = layers.Lambda(lambda x: ops.sum(x, axis=1), name="readout")(
        layers.Multiply(name="gated")([gate, value])
    )
    g = layers.Dense(16, activation="relu", name="hidden")(g)
    return keras.Model([atom, bond, senders, receivers, exists], layers.Dense(1, name="property")(g))
