"""RotatE: entities are complex vectors, a relation rotates them; trained with self-adversarial negatives."""

import math

import keras
from keras import layers, ops

ENTITIES, RELATIONS, WIDTH, NEGATIVES = 40, 6, 8, 8
MARGIN, TEMPERATURE = 4.0, 0.7


def build():
    head = keras.Input((), dtype="int32", name="head")
    relation = keras.Input((), dtype="int32", name="relation")
    tail = keras.Input((), dtype="int32", name="tail")
    corrupt = keras.Input((NEGATIVES,), dtype="int32", name="corrupt")

    bound = (MARGIN + 2.0) / WIDTH
    uniform = keras.initializers.RandomUniform(-bound, bound)
    entity = layers.Embedding(ENTITIES, 2 * WIDTH, embeddings_initializer=uniform, name="entity")
    phase = layers.Embedding(RELATIONS, WIDTH, embeddings_initializer=uniform, name="phase")

    # Phases are kept at the scale of the entities, so that one learning rate suits both.
    angle = phase(relation) * (math.pi / bound)
    cos, sin = ops.cos(angle), ops.sin(angle)
    real, imaginary = ops.split(entity(head), 2, axis=-1)
    rotated_real = (real * cos - imaginary * sin)[:, None]
    rotated_imaginary = (real * sin + imaginary * cos)[:, None]

    candidates = ops.concatenate([tail[:, None], corrupt], axis=1)
    tail_real, tail_imaginary = ops.split(entity(candidates), 2, axis=-1)
    squares = ops.square(rotated_real - tail_real) + ops.square(rotated_imaginary - tail_imaginary)
    score = MARGIN - ops.sum(ops.sqrt(squares), axis=-1)
    return keras.Model({"head": head, "relation": relation, "tail": tail, "corrupt": corrupt}, score)


def loss(y_true, y_pred):
    """y_true weighs a triple down that has many like it; y_pred has the true triple's score first."""
    positive, negative = y_pred[:, 0], y_pred[:, 1:]
    hardness = ops.stop_gradient(ops.softmax(TEMPERATURE * negative, axis=-1))
    negative = ops.sum(hardness * ops.softplus(negative), axis=-1)
    return y_true[:, 0] * (ops.softplus(-positive) + negative) / 2
