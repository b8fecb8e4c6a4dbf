"""Dependency parser with biaffine scores (Dozat & Manning): heads of words, and labels of the arcs.

Word 0 is padding. Targets: "arc" (n, length) heads, "label" (n, length, 2) heads and labels, -1 where padded.
"""

import keras
from keras import layers, ops


class Biaffine(layers.Layer):
    """score[b, i, j, r] = dep[b, i]' U[r] head[b, j], a constant one put behind the dependents (and the heads)."""

    def __init__(self, outputs, bias_head=False, **kwargs):
        super().__init__(**kwargs)
        self.outputs, self.bias_head = outputs, bias_head

    def build(self, dep_shape, head_shape):
        shape = (self.outputs, dep_shape[-1] + 1, head_shape[-1] + int(self.bias_head))
        self.kernel = self.add_weight(shape=shape, initializer="glorot_uniform", name="kernel")

    def call(self, dep, head):
        dep = ops.concatenate([dep, ops.ones_like(dep[..., :1])], -1)
        if self.bias_head:
            head = ops.concatenate([head, ops.ones_like(head[..., :1])], -1)
        return ops.einsum("bip,rpq,bjq->bijr", dep, self.kernel, head)


class MaskScores(layers.Layer):
    """Heads that are padding get -1000; the scores of padded dependents are zero."""

    def call(self, scores, words):
        valid = ops.cast(ops.not_equal(words, 0), scores.dtype)
        scores = scores - 1000.0 * (1 - valid[:, None, :, None])
        return scores * valid[:, :, None, None]


def build(words=40, tags=7, length=8, units=9, arc=10, label=6, labels=4):
    word = keras.Input((length,), dtype="int32", name="words")
    tag = keras.Input((length,), dtype="int32", name="tags")
    x = layers.Concatenate()(
        [
            layers.Embedding(words, 10, mask_zero=True, name="word_vectors")(word),
            layers.Embedding(tags, 4, mask_zero=True, name="tag_vectors")(tag),
        ]
    )
    x = layers.Bidirectional(layers.GRU(units, return_sequences=True), name="encoder")(x)

    def head(size, name):
        return layers.Dense(size, activation="elu", name=name)(x)

    arcs = Biaffine(1, name="arc_scores")(head(arc, "arc_dep"), head(arc, "arc_head"))
    rels = Biaffine(labels, bias_head=True, name="label_scores")(
        head(label, "label_dep"), head(label, "label_head")
    )
    arcs, rels = MaskScores()(arcs, word), MaskScores()(rels, word)
    return keras.Model(
        [word, tag], {"arc": layers.Reshape((length, length), name="arc")(arcs), "label": rels}, name="parser"
    )


def masked(values, valid):
    valid = ops.cast(valid, values.dtype)
    return ops.sum(values * valid, -1) / ops.sum(valid, -1)


def arc_loss(y_true, y_pred):
    y_true = ops.cast(y_true, "int32")
    value = ops.sparse_categorical_crossentropy(ops.maximum(y_true, 0), y_pred, from_logits=True)
    return masked(value, y_true >= 0)


def label_loss(y_true, y_pred):
    y_true = ops.cast(y_true, "int32")
    heads = ops.one_hot(y_true[..., 0], y_pred.shape[2], dtype=y_pred.dtype)
    at_head = ops.sum(y_pred * heads[..., None], axis=2)
    value = ops.sparse_categorical_crossentropy(ops.maximum(y_true[..., 1], 0), at_head, from_logits=True)
    return masked(value, y_true[..., 1] >= 0)
