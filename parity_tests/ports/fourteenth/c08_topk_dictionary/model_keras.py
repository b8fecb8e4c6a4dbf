"""Sparse dictionary of activations: the k strongest features of a sample rebuild it."""

import keras
from keras import ops


class TopKDictionary(keras.layers.Layer):
    def __init__(self, features, k, **kwargs):
        super().__init__(**kwargs)
        self.features, self.k = features, k

    def build(self, shape):
        width = shape[-1]
        self.center = self.add_weight(shape=(width,), initializer="zeros", name="center")
        self.atoms = self.add_weight(shape=(width, self.features), initializer="he_normal", name="atoms")
        self.threshold = self.add_weight(shape=(self.features,), initializer="zeros", name="threshold")
        self.gain = self.add_weight(shape=(self.features,), initializer="ones", name="gain")

    def call(self, x):
        atoms = self.atoms / ops.norm(self.atoms, axis=0, keepdims=True)
        code = ops.relu(ops.matmul(x - self.center, atoms) * self.gain - self.threshold)
        values, indices = ops.top_k(code, self.k)
        kept = ops.sum(ops.one_hot(indices, self.features, dtype=x.dtype) * values[..., None], axis=1)
        return ops.matmul(kept, ops.transpose(atoms)) + self.center

    def compute_output_shape(self, shape):
        return shape


def build():
    activations = keras.Input((16,), name="activations")
    return keras.Model(activations, TopKDictionary(32, 5, name="dictionary")(activations))


def loss(y_true, y_pred):
    """The part of a sample's energy that is not explained."""
    energy = ops.sum(ops.square(y_true), axis=-1)
    return ops.sum(ops.square(y_true - y_pred), axis=-1) / (energy + 1e-3)
