"""ComplEx: links of a knowledge graph, with negative samples that weigh by how hard they are."""

import keras
from keras import layers, ops


class ComplExScore(layers.Layer):
    """Real part of <head, relation, conjugate of tail>; vectors hold real parts, then imaginary ones."""

    def call(self, head, relation, tails):
        hr, hi = ops.split(head, 2, axis=-1)
        rr, ri = ops.split(relation, 2, axis=-1)
        tr, ti = ops.split(tails, 2, axis=-1)
        re, im = hr * rr - hi * ri, hr * ri + hi * rr
        return ops.einsum("bd,bnd->bn", re, tr) + ops.einsum("bd,bnd->bn", im, ti)


def build(entities=80, relations=6, dim=16):
    head = keras.Input((), dtype="int32", name="head")
    relation = keras.Input((), dtype="int32", name="relation")
    tail = keras.Input((1,), dtype="int32", name="tail")
    negatives = keras.Input((8,), dtype="int32", name="negatives")
    entity = layers.Embedding(
        entities,
        2 * dim,
        embeddings_initializer="random_normal",
        embeddings_constraint=keras.constraints.UnitNorm(axis=1),
        name="entity",
    )
    link = layers.Embedding(relations, 2 * dim, embeddings_initializer="random_normal", name="link")
    tails = layers.Concatenate(name="candidates")([tail, negatives])
    score = ComplExScore(name="score")(entity(head), link(relation), entity(tails))
    return keras.Model([head, relation, tail, negatives], score)


def ranking_loss(weight, score):
    """Self-adversarial negative sampling; the target is each triple's weight."""
    positive, negative = score[:, 0], score[:, 1:]
    share = ops.stop_gradient(ops.softmax(2.0 * negative, axis=-1))
    loss = ops.softplus(1.0 - positive) + ops.sum(share * ops.softplus(negative + 1.0), axis=-1)
    return ops.reshape(weight, (-1,)) * loss / 2
