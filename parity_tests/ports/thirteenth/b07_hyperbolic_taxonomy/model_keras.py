"""Links of a taxonomy in the Poincare ball: which of six candidates is the parent of a concept?"""

import keras
from keras import ops
from keras.layers import Embedding, Layer


def norm(x):
    return ops.sqrt(ops.sum(x * x, axis=-1, keepdims=True) + 1e-12)


def expmap0(v):
    length = norm(v)
    return ops.tanh(length) * v / length


def mobius_add(x, y):
    xy = ops.sum(x * y, -1, keepdims=True)
    xx = ops.sum(x * x, -1, keepdims=True)
    yy = ops.sum(y * y, -1, keepdims=True)
    return ((1 + 2 * xy + yy) * x + (1 - xx) * y) / (1 + 2 * xy + xx * yy)


class Scores(Layer):
    """-d(R x + r, y)^2 + b_x + b_y, after MuRP."""

    def __init__(self, concepts, relations, dim, **kwargs):
        super().__init__(**kwargs)
        self.concepts, self.relations, self.dim = concepts, relations, dim
        self.points = Embedding(concepts, dim, name="points")
        self.biases = Embedding(concepts, 1, embeddings_initializer="zeros", name="biases")
        self.stretch = Embedding(relations, dim, embeddings_initializer="ones", name="stretch")
        self.shift = Embedding(relations, dim, name="shift")

    def build(self, child_shape, relation_shape, candidates_shape):
        for embedding in (self.points, self.biases, self.stretch, self.shift):
            embedding.build()
        self.curvature = self.add_weight(shape=(), initializer="ones", name="temperature")

    def call(self, child, relation, candidates):
        x = expmap0(self.stretch(relation) * self.points(child))
        x = mobius_add(x, expmap0(self.shift(relation)))[:, None]
        y = expmap0(self.points(candidates))
        difference = norm(mobius_add(-x, y))[..., 0]
        distance = 2 * ops.arctanh(ops.minimum(difference, 1 - 1e-6))
        bias = self.biases(child) + self.biases(candidates)[..., 0]
        return bias - ops.softplus(self.curvature) * ops.square(distance)

    def compute_output_shape(self, child_shape, relation_shape, candidates_shape):
        return candidates_shape


def build(concepts=31, relations=3, dim=6):
    child = keras.Input((), dtype="int32", name="child")
    relation = keras.Input((), dtype="int32", name="relation")
    candidates = keras.Input((6,), dtype="int32", name="candidates")
    scores = Scores(concepts, relations, dim, name="scores")(child, relation, candidates)
    return keras.Model([child, relation, candidates], scores)
