import numpy as np
from keras import Input, Model, layers, ops

FIELDS = (12, 7, 20, 5)


class Offset(layers.Layer):
    """Every field gets its own rows of the common table."""

    def call(self, ids):
        starts = np.concatenate([[0], np.cumsum(FIELDS)[:-1]]).astype("int32")
        return ids + starts


class SumFields(layers.Layer):
    def call(self, w):
        return ops.sum(w, axis=1)


class FactorizationMachine(layers.Layer):
    def call(self, v):
        square_of_sum = ops.square(ops.sum(v, axis=1))
        sum_of_square = ops.sum(ops.square(v), axis=1)
        return 0.5 * ops.sum(square_of_sum - sum_of_square, axis=-1, keepdims=True)


def build(factors=8):
    categories = Input((len(FIELDS),), dtype="int32", name="categories")
    numeric = Input((5,), name="numeric")
    ids = Offset(name="offset")(categories)
    v = layers.Embedding(sum(FIELDS), factors, name="factors")(ids)
    w = layers.Embedding(sum(FIELDS), 1, name="weights")(ids)
    linear = layers.Add(name="linear")(
        [SumFields(name="categories_sum")(w), layers.Dense(1, name="numeric_weights")(numeric)]
    )
    fm = FactorizationMachine(name="fm")(v)
    deep = layers.Concatenate(name="deep_input")([layers.Flatten(name="factors_flat")(v), numeric])
    for i, n in enumerate((32, 16), 1):
        deep = layers.Dense(n, activation="relu", name=f"deep{i}")(deep)
    deep = layers.Dense(1, use_bias=False, name="deep_out")(deep)
    return Model([categories, numeric], layers.Add(name="rating")([linear, fm, deep]), name="deepfm")
