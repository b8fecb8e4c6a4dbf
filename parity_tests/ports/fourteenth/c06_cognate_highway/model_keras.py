"""Are two words cognates? Character convolutions with a highway network, shared by both words."""

import keras
from keras import layers, ops

LETTERS, LENGTH = 27, 10


class Highway(layers.Layer):
    def __init__(self, depth=2, carry_bias=-1.0, **kwargs):
        super().__init__(**kwargs)
        self.depth = depth
        self.carry_bias = carry_bias

    def build(self, shape):
        width = shape[-1]
        self.transforms, self.gates = [], []
        for i in range(self.depth):
            transform = layers.Dense(width, activation="relu", name=f"transform_{i}")
            gate = layers.Dense(
                width,
                activation="sigmoid",
                bias_initializer=keras.initializers.Constant(self.carry_bias),
                name=f"gate_{i}",
            )
            transform.build(shape)
            gate.build(shape)
            self.transforms.append(transform)
            self.gates.append(gate)

    def call(self, x):
        for transform, gate in zip(self.transforms, self.gates):
            g = gate(x)
            x = g * transform(x) + (1 - g) * x
        return x


def word_encoder():
    letters = keras.Input((LENGTH,), dtype="int32")
    x = layers.Embedding(LETTERS, 6, name="letters")(letters)
    real = ops.expand_dims(ops.not_equal(letters, 0), -1)
    pooled = []
    for size, filters in ((1, 4), (2, 6), (3, 6)):
        y = layers.Conv1D(filters, size, padding="same", activation="tanh", name=f"conv_{size}")(x)
        # Letters only; tanh is never below -1.
        pooled.append(ops.max(ops.where(real, y, -1.0), axis=1))
    x = layers.Concatenate()(pooled)
    return keras.Model(letters, Highway(name="highway")(x), name="word")


def build():
    first = keras.Input((LENGTH,), dtype="int32", name="first")
    second = keras.Input((LENGTH,), dtype="int32", name="second")
    word = word_encoder()
    a, b = word(first), word(second)
    x = layers.Concatenate()([ops.abs(a - b), a * b])
    x = layers.Dense(12, activation="relu", name="compare")(x)
    return keras.Model([first, second], layers.Dense(1, name="logit")(x))


def loss(y_true, y_pred):
    return ops.mean(ops.softplus(y_pred) - y_true * y_pred, axis=-1)
