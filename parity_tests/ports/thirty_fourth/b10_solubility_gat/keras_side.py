"""Graph attention over the atoms of small molecules; predicts log solubility."""

import math

import keras
from keras import layers, ops


class GraphAttention(layers.Layer):
    def __init__(self, units, heads, **kwargs):
        super().__init__(**kwargs)
        self.units, self.heads = units, heads

    def build(self, atoms_shape, edges_shape):
        self.kernel = self.add_weight(
            name="kernel", shape=(atoms_shape[-1], self.heads, self.units), initializer="glorot_uniform"
        )
        self.attend_from = self.add_weight(
            name="attend_from", shape=(self.heads, self.units), initializer="glorot_uniform"
        )
        self.attend_to = self.add_weight(
            name="attend_to", shape=(self.heads, self.units), initializer="glorot_uniform"
        )
        self.bias = self.add_weight(name="bias", shape=(self.heads * self.units,), initializer="zeros")

    def call(self, atoms, edges):
        h = ops.einsum("bnf,fhu->bnhu", atoms, self.kernel)
        source = ops.einsum("bnhu,hu->bhn", h, self.attend_from)
        target = ops.einsum("bnhu,hu->bhn", h, self.attend_to)
        logits = target[..., :, None] + source[..., None, :]
        logits = ops.maximum(logits, 0.2 * logits)  # leaky relu
        logits = ops.where(edges[:, None] > 0, logits, -1e9)
        attention = ops.softmax(logits, axis=-1)
        out = ops.einsum("bhij,bjhu->bihu", attention, h)
        return ops.reshape(out, (-1, out.shape[1], self.heads * self.units)) + self.bias

    def compute_output_shape(self, atoms_shape, edges_shape):
        return (*atoms_shape[:-1], self.heads * self.units)


class MaskedReadout(layers.Layer):
    def call(self, atoms, present):
        present = present[..., None]
        total = ops.sum(atoms * present, axis=1)
        return ops.concatenate([total, total / ops.sum(present, axis=1)], axis=-1)


def build():
    atoms = keras.Input((9, 7), name="atoms")
    bonds = keras.Input((9, 9), name="bonds")
    present = keras.Input((9,), name="present")
    edges = bonds + ops.eye(9)  # every atom sees itself
    x = atoms
    for i in range(2):
        y = GraphAttention(6, 3, name=f"attention{i}")(x, edges)
        y = layers.LayerNormalization(epsilon=1e-5, name=f"norm{i}")(y)
        y = layers.Activation("elu")(y)
        x = y if i == 0 else layers.Add()([x, y])
    pooled = MaskedReadout()(x, present)
    z = layers.Dense(16, activation="silu", name="hidden")(pooled)
    return keras.Model([atoms, bonds, present], layers.Dense(1, name="log_s")(z))


def log_cosh(y_true, y_pred):
    error = y_pred - y_true
    return ops.mean(error + ops.softplus(-2.0 * error) - math.log(2.0))


def optimizer():
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, decay_steps=30, alpha=0.1, warmup_target=5e-3, warmup_steps=4
    )
    rmsprop = keras.optimizers.RMSprop(
        schedule, rho=0.95, momentum=0.8, weight_decay=0.02, global_clipnorm=1.0
    )
    rmsprop.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    return rmsprop
