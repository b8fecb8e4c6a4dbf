"""Click-through rate: low-rank crosses and pairwise products over columns of codes and numbers."""

import keras
from keras import layers, ops

COLUMNS = {"country": 7, "device": 5, "campaign": 30, "site": 50}
DIM, RANK, NUMBERS = 8, 6, 4


class Cross(layers.Layer):
    """x0 * (U V x + b) + x"""

    def __init__(self, rank, **kwargs):
        super().__init__(**kwargs)
        self.rank = rank

    def build(self, x0_shape, x_shape):
        width = x_shape[-1]
        self.down = self.add_weight(shape=(width, self.rank), initializer="glorot_normal", name="down")
        self.up = self.add_weight(shape=(self.rank, width), initializer="glorot_normal", name="up")
        self.bias = self.add_weight(shape=(width,), initializer="zeros", name="bias")

    def call(self, x0, x):
        return x0 * (ops.matmul(ops.matmul(x, self.down), self.up) + self.bias) + x


class Pairs(layers.Layer):
    """Sum over all pairs of fields of the products of their vectors, by square of sum less sum of squares."""

    def call(self, fields):
        return 0.5 * (ops.square(ops.sum(fields, axis=1)) - ops.sum(ops.square(fields), axis=1))


def build():
    codes = {name: keras.Input((1,), dtype="int32", name=name) for name in COLUMNS}
    numbers = keras.Input((NUMBERS,), name="numbers")

    vectors = [
        layers.Embedding(size, DIM, name=f"{name}_vector")(codes[name]) for name, size in COLUMNS.items()
    ]
    linear = [layers.Embedding(size, 1, name=f"{name}_linear")(codes[name]) for name, size in COLUMNS.items()]
    fields = layers.Concatenate(axis=1, name="fields")(vectors)

    scaled = layers.BatchNormalization(center=False, momentum=0.8, name="scaled")(
        ops.sign(numbers) * ops.log1p(ops.abs(numbers))
    )
    x0 = layers.Concatenate(name="wide")([layers.Flatten()(fields), scaled])
    x = x0
    for i in range(2):
        x = Cross(RANK, name=f"cross_{i}")(x0, x)

    deep = x0
    for i, units in enumerate((40, 24)):
        deep = layers.Dense(units, name=f"deep_{i}")(deep)
        deep = layers.LeakyReLU(negative_slope=0.125, name=f"leak_{i}")(deep)
        deep = layers.Dropout(0.2, name=f"drop_{i}")(deep)

    top = layers.Concatenate(name="top")([x, deep, Pairs(name="pairs")(fields)])
    first_order = ops.sum(layers.Concatenate(axis=1)(linear), axis=1)
    logit = layers.Dense(1, name="logit")(top) + first_order
    return keras.Model([*codes.values(), numbers], logit, name="click_rate")
