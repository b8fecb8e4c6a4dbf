"""Principal neighbourhood aggregation with a Set2Set readout; several toxicity assays, many labels missing."""

import keras
import numpy as np
from keras import layers, ops

ATOMS = 14
ELEMENTS = 9
BONDS = 5
HIDDEN = 24
ASSAYS = 5
LAYERS = 2
READS = 3
MEAN_LOG_DEGREE = 1.1
POSITIVE_WEIGHT = np.array([3.0, 1.5, 6.0, 2.25, 4.5], "float32")


class PNA(layers.Layer):
    """Messages over bonds; mean, max, min and deviation of them, each also scaled by the degree up and down."""

    def __init__(self, hidden, **kwargs):
        super().__init__(**kwargs)
        self.bond = layers.Embedding(BONDS, 8, name="bond")
        self.message = layers.Dense(hidden, name="message")
        self.mix = layers.Dense(hidden, activation=layers.LeakyReLU(0.25), name="mix")
        self.update = layers.GRUCell(hidden, reset_after=True, name="update")
        self.norm = layers.RMSNormalization(epsilon=1e-6, name="norm")
        self.hidden = hidden

    def build(self, h_shape, bonds_shape):
        h = self.hidden
        self.bond.build(bonds_shape)
        self.message.build((None, None, None, 2 * h + 8))
        self.mix.build((None, None, 12 * h))
        self.update.build((None, h))
        self.norm.build((None, None, h))

    def call(self, h, bonds):
        n = h.shape[1]
        linked = ops.expand_dims(ops.not_equal(bonds, 0), -1)
        receiver = ops.repeat(ops.expand_dims(h, 2), n, axis=2)
        sender = ops.repeat(ops.expand_dims(h, 1), n, axis=1)
        m = self.message(ops.concatenate([receiver, sender, self.bond(bonds)], axis=-1))

        weight = ops.cast(linked, m.dtype)
        degree = ops.sum(weight, axis=2)
        count = ops.maximum(degree, 1.0)
        mean = ops.sum(m * weight, axis=2) / count
        square = ops.sum(ops.square(m) * weight, axis=2) / count
        deviation = ops.sqrt(ops.relu(square - ops.square(mean)) + 1e-5)
        some = degree > 0
        most = ops.where(some, ops.max(ops.where(linked, m, -1e9), axis=2), 0.0)
        least = ops.where(some, ops.min(ops.where(linked, m, 1e9), axis=2), 0.0)

        pooled = ops.concatenate([mean, most, least, deviation], axis=-1)
        up = ops.log(degree + 1.0) / MEAN_LOG_DEGREE
        down = MEAN_LOG_DEGREE / ops.log(count + 1.0)
        mixed = self.mix(ops.concatenate([pooled, pooled * up, pooled * down], axis=-1))

        flat = (-1, self.hidden)
        new, _ = self.update(ops.reshape(mixed, flat), [ops.reshape(h, flat)])
        return self.norm(ops.reshape(new, (-1, n, self.hidden)))


class Set2Set(layers.Layer):
    def __init__(self, hidden, reads, **kwargs):
        super().__init__(**kwargs)
        self.hidden, self.reads = hidden, reads
        self.cell = layers.LSTMCell(hidden, unit_forget_bias=False, name="reader")

    def build(self, nodes_shape):
        self.cell.build((None, 2 * self.hidden))

    def call(self, nodes, real):
        query = ops.zeros_like(nodes[:, 0])
        states = [query, query]
        both = ops.concatenate([query, query], axis=-1)
        for _ in range(self.reads):
            query, states = self.cell(both, states)
            score = ops.where(real, ops.einsum("bnd,bd->bn", nodes, query), -1e9)
            read = ops.einsum("bn,bnd->bd", ops.softmax(score, axis=-1), nodes)
            both = ops.concatenate([query, read], axis=-1)
        return both


def build():
    elements = keras.Input((ATOMS,), dtype="int32", name="elements")  # 0: no atom
    charges = keras.Input((ATOMS, 2), name="charges")
    bonds = keras.Input((ATOMS, ATOMS), dtype="int32", name="bonds")  # 0: none

    real = ops.not_equal(elements, 0)
    h = layers.Concatenate()([layers.Embedding(ELEMENTS, 16, name="element")(elements), charges])
    h = layers.Dense(HIDDEN, activation="tanh", name="lift")(h)
    for i in range(LAYERS):
        h = PNA(HIDDEN, name=f"pna_{i}")(h, bonds)
    x = Set2Set(HIDDEN, READS, name="readout")(h, real)
    x = layers.Dense(32, activation="elu", name="head")(x)
    return keras.Model([elements, charges, bonds], layers.Dense(ASSAYS, name="assays")(x))


def assay_loss(labels, logits):
    """Labels are 1, 0, or -1 where the assay was not made; mean over the assays made of a molecule."""
    labels = ops.cast(labels, logits.dtype)
    made = ops.cast(labels >= 0, logits.dtype)
    active = ops.maximum(labels, 0.0)
    weight = ops.cast(POSITIVE_WEIGHT, logits.dtype)
    loss = weight * active * ops.softplus(-logits) + (1.0 - active) * ops.softplus(logits)
    return ops.mean(ops.sum(loss * made, axis=-1) / ops.sum(made, axis=-1))
