"""DeepFM: a factorisation machine and a deep part over the same embeddings; numbers are normalised by an adapted layer."""

import os

import keras
import numpy as np
from keras import layers, ops

SIZES = [12, 7, 5, 9]
HERE = os.path.dirname(os.path.abspath(__file__))


@keras.saving.register_keras_serializable()
class FieldOffsets(layers.Layer):
    def call(self, fields):
        return fields + ops.convert_to_tensor(np.cumsum([0, *SIZES[:-1]]), dtype=fields.dtype)


@keras.saving.register_keras_serializable()
class SecondOrder(layers.Layer):
    def call(self, v):
        square_of_sum = ops.square(ops.sum(v, axis=1))
        sum_of_squares = ops.sum(ops.square(v), axis=1)
        return 0.5 * ops.sum(square_of_sum - sum_of_squares, axis=-1, keepdims=True)


def build(factors=6):
    fields = keras.Input((4,), dtype="int32", name="fields")
    numbers = keras.Input((3,), name="numbers")
    normalise = layers.Normalization(name="normalise")
    normalise.adapt(np.load(os.path.join(HERE, "data.npz"))["numbers"])
    dense = normalise(numbers)
    ids = FieldOffsets(name="offsets")(fields)
    first = layers.Embedding(sum(SIZES), 1, name="first")(ids)
    v = layers.Embedding(sum(SIZES), factors, embeddings_initializer="glorot_normal", name="factors")(ids)
    linear = layers.Add()([ops.sum(first, axis=1), layers.Dense(1, name="linear")(dense)])
    deep = layers.Concatenate()([layers.Flatten()(v), dense])
    for i, units in enumerate((24, 12)):
        deep = layers.Dense(units, name=f"deep_{i}")(deep)
        deep = layers.LeakyReLU(name=f"leaky_{i}")(deep)
        deep = layers.Dropout(0.2)(deep)
    deep = layers.Dense(1, use_bias=False, name="deep_out")(deep)
    return keras.Model([fields, numbers], layers.Add(name="click")([linear, SecondOrder(name="fm")(v), deep]))
