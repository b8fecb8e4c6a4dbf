"""Identities from face descriptors, with an additive angular margin while training (ArcFace)."""

import math

import keras
from keras import layers, ops

PERSONS = 8


class AngularMargin(layers.Layer):
    def __init__(self, persons, margin=0.4, scale=12.0, **kwargs):
        super().__init__(**kwargs)
        self.persons = persons
        self.margin, self.scale = margin, scale

    def build(self, embedding_shape, person_shape):
        self.prototypes = self.add_weight(
            shape=(embedding_shape[-1], self.persons), initializer="glorot_uniform", name="prototypes"
        )

    def call(self, embedding, person, training=False):
        embedding = embedding * ops.rsqrt(ops.sum(ops.square(embedding), axis=1, keepdims=True))
        prototypes = self.prototypes * ops.rsqrt(ops.sum(ops.square(self.prototypes), axis=0, keepdims=True))
        cosine = ops.matmul(embedding, prototypes)
        if training:
            # cos(angle + margin) without the angle.
            sine = ops.sqrt(ops.maximum(1 - ops.square(cosine), 1e-9))
            moved = cosine * math.cos(self.margin) - sine * math.sin(self.margin)
            # Beyond pi the cosine would rise again: go on linearly.
            moved = ops.where(
                cosine > -math.cos(self.margin), moved, cosine - self.margin * math.sin(self.margin)
            )
            own = ops.one_hot(person, self.persons, dtype=cosine.dtype)
            cosine = own * moved + (1 - own) * cosine
        return self.scale * cosine

    def compute_output_shape(self, embedding_shape, person_shape):
        return (embedding_shape[0], self.persons)


def build():
    face = keras.Input((20,), name="face")
    person = keras.Input((), dtype="int32", name="person")
    x = face
    for i in range(2):
        x = layers.Dense(24, use_bias=False, name=f"dense_{i}")(x)
        x = layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=f"norm_{i}")(x)
        x = layers.LeakyReLU(negative_slope=0.25)(x)
    x = layers.Dense(10, use_bias=False, name="embed")(x)
    x = layers.BatchNormalization(momentum=0.9, epsilon=1e-5, scale=False, name="embed_norm")(x)
    return keras.Model([face, person], AngularMargin(PERSONS, name="margin")(x, person))
