"""Classifier of small pictures, with layers whose weights are tensor trains."""

import math

import keras
from keras import layers, ops


class TTDense(layers.Layer):
    """Core k has the shape (rank, n_k, m_k, next rank); it takes one axis n_k of the inputs to m_k."""

    def __init__(self, inputs, outputs, rank, activation=None, **kwargs):
        super().__init__(**kwargs)
        self.inputs, self.outputs, self.rank = inputs, outputs, rank
        self.activation = keras.activations.get(activation)

    def build(self, shape):
        ranks = [1] + [self.rank] * (len(self.inputs) - 1) + [1]
        self.cores = [
            self.add_weight(
                shape=(ranks[k], n, m, ranks[k + 1]),
                initializer=keras.initializers.RandomNormal(0, 0.35),
                name=f"core{k}",
            )
            for k, (n, m) in enumerate(zip(self.inputs, self.outputs))
        ]
        self.bias = self.add_weight(shape=(math.prod(self.outputs),), initializer="zeros", name="bias")

    def call(self, x):
        # (batch, rest of the inputs, rank) with what is done already moved behind the batch
        h = ops.reshape(x, (-1, 1, math.prod(self.inputs), 1))
        done, left = 1, math.prod(self.inputs)
        for core, n, m in zip(self.cores, self.inputs, self.outputs):
            left //= n
            h = ops.reshape(h, (-1, done, n, left, core.shape[0]))
            h = ops.einsum("bdnlr,rnms->bdmls", h, core)
            done *= m
            h = ops.reshape(h, (-1, done, left, core.shape[-1]))
        return self.activation(ops.reshape(h, (-1, done)) + self.bias)


def build():
    picture = keras.Input((8, 8), name="picture")
    x = layers.Flatten()(picture)
    h = TTDense((4, 4, 4), (3, 4, 5), 4, name="train0")(x)
    h = layers.BatchNormalization(momentum=0.9, name="norm")(h)
    h = layers.Activation("relu")(h)
    h = layers.Dropout(0.2)(h)
    r = TTDense((3, 4, 5), (5, 4, 3), 3, activation="tanh", name="train1")(h)
    h = layers.Add()([h, r])
    return keras.Model(picture, layers.Dense(6, name="classes")(h))
