"""Multi-gate mixture of experts: does the visitor click, and how much is spent."""

import keras
from keras import layers, ops

REGIONS, CATEGORIES = 9, 14
EXPERTS, EXPERT_UNITS = 4, 20


class Experts(layers.Layer):
    """All experts in one weight: (batch, features) -> (batch, experts, units)."""

    def __init__(self, experts, units, **kwargs):
        super().__init__(**kwargs)
        self.experts, self.units = experts, units

    def build(self, input_shape):
        self.w = self.add_weight(
            name="w", shape=(self.experts, input_shape[-1], self.units), initializer="glorot_uniform"
        )
        self.b = self.add_weight(name="b", shape=(self.experts, self.units), initializer="zeros")

    def call(self, x):
        return ops.relu(ops.einsum("bd,edu->beu", x, self.w) + self.b)


def tower(name, shared, experts):
    gate = layers.Dense(EXPERTS, activation="softmax", use_bias=False, name=f"{name}_gate")(shared)
    mixed = layers.Dot(axes=(1, 1), name=f"{name}_mix")([gate, experts])
    h = layers.Dense(12, activation="elu", name=f"{name}_hidden")(mixed)
    h = layers.Dropout(0.1, name=f"{name}_drop")(h)
    return layers.Dense(1, name=f"{name}_out")(h)


def build():
    region = keras.Input((), dtype="int32", name="region")
    category = keras.Input((), dtype="int32", name="category")
    numbers = keras.Input((6,), name="numbers")
    shared = layers.Concatenate(name="shared")(
        [
            layers.Embedding(REGIONS, 4, name="region_table")(region),
            layers.Embedding(CATEGORIES, 5, name="category_table")(category),
            numbers,
        ]
    )
    experts = Experts(EXPERTS, EXPERT_UNITS, name="experts")(shared)
    outputs = {"click": tower("click", shared, experts), "spend": tower("spend", shared, experts)}
    return keras.Model([region, category, numbers], outputs, name="mmoe")
