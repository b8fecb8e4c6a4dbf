"""Contacts of a small protein from its residues, by triangle multiplication over pairs."""

import keras
import numpy as np
from keras import layers, ops

REACH, APART = 3, 3


class RelativePosition(layers.Layer):
    def build(self, shape):
        self.table = self.add_weight(
            shape=(2 * REACH + 1, shape[-1]), initializer="glorot_uniform", name="table"
        )

    def call(self, pair):
        place = np.arange(pair.shape[1])
        offset = np.clip(place[None] - place[:, None], -REACH, REACH) + REACH
        return pair + ops.take(self.table, offset, axis=0)


def triangle(pair, channels, name):
    """Outgoing edges: i to j from i to k and j to k."""
    x = layers.LayerNormalization(name=f"{name}_norm")(pair)
    side = {}
    for key in "ab":
        gate = layers.Dense(channels, activation="sigmoid", name=f"{name}_{key}_gate")(x)
        side[key] = layers.Multiply()([gate, layers.Dense(channels, name=f"{name}_{key}")(x)])
    product = ops.einsum("bikc,bjkc->bijc", side["a"], side["b"])
    product = layers.LayerNormalization(name=f"{name}_inner_norm")(product)
    product = layers.Dense(pair.shape[-1], name=f"{name}_out")(product)
    gate = layers.Dense(pair.shape[-1], activation="sigmoid", name=f"{name}_gate")(x)
    return layers.Add()([pair, layers.Multiply()([gate, product])])


def transition(pair, name):
    x = layers.LayerNormalization(name=f"{name}_norm")(pair)
    x = layers.Dense(2 * pair.shape[-1], activation="relu", name=f"{name}_wide")(x)
    return layers.Add()([pair, layers.Dense(pair.shape[-1], name=f"{name}_narrow")(x)])


def build(length=9, residues=12, dim=8, channels=6, blocks=2):
    sequence = keras.Input((length,), dtype="int32", name="residues")
    x = layers.Embedding(residues, dim, name="residue")(sequence)
    row = layers.Dense(dim, name="row")(x)
    column = layers.Dense(dim, use_bias=False, name="column")(x)
    pair = ops.expand_dims(row, 2) + ops.expand_dims(column, 1)
    pair = RelativePosition(name="position")(pair)
    for i in range(blocks):
        pair = triangle(pair, channels, f"triangle_{i}")
        pair = transition(pair, f"transition_{i}")
    pair = (pair + ops.transpose(pair, (0, 2, 1, 3))) / 2
    logit = layers.Dense(1, name="contact")(layers.LayerNormalization(name="last_norm")(pair))
    return keras.Model(sequence, ops.squeeze(logit, -1))


def loss(y_true, y_pred):
    """Cross-entropy of pairs at least APART residues from each other; contacts count double."""
    place = np.arange(y_pred.shape[1])
    far = ops.cast(np.abs(place[:, None] - place) >= APART, y_pred.dtype)
    weight = far * (1 + y_true)
    value = ops.softplus(y_pred) - y_true * y_pred
    return ops.sum(value * weight, axis=(1, 2)) / ops.sum(far)


def optimizer():
    sgd = keras.optimizers.SGD(1 / 16, momentum=0.875, weight_decay=1 / 64)
    sgd.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    return sgd
