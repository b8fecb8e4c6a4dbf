"""Tagger of chunks (B, I, O of two kinds) with a conditional random field on top; 0 pads tokens and tags."""

import keras
import tensorflow as tf
from keras import layers, ops

TAGS = 5


class CRFTagger(keras.Model):
    def __init__(self, vocabulary=30, width=12):
        super().__init__()
        self.embedding = layers.Embedding(vocabulary, width)
        self.context = layers.Conv1D(24, 3, padding="same", activation="relu")
        self.wider = layers.Conv1D(24, 3, padding="same", dilation_rate=2, activation="relu")
        self.emission = layers.Dense(TAGS)
        self.transitions = self.add_weight(
            shape=(TAGS, TAGS), initializer="glorot_uniform", name="transitions"
        )
        self.start = self.add_weight(shape=(TAGS,), initializer="zeros", name="start")
        self.end = self.add_weight(shape=(TAGS,), initializer="zeros", name="end")

    def call(self, tokens):
        mask = ops.cast(ops.not_equal(tokens, 0), self.compute_dtype)[..., None]
        x = self.embedding(tokens) * mask
        x = self.context(x) * mask
        x = x + self.wider(x)
        return self.emission(x)

    def gold_score(self, emissions, tags, mask):
        hot = ops.one_hot(tags, TAGS, dtype=emissions.dtype)
        score = ops.sum(emissions * hot, axis=-1)
        step = ops.einsum("nti,ij,ntj->nt", hot[:, :-1], self.transitions, hot[:, 1:])
        # 1 at the last token of each sentence.
        last = mask - ops.pad(mask[:, 1:], [[0, 0], [0, 1]])
        return (
            ops.sum(score * mask, axis=1)
            + ops.sum(step * mask[:, 1:], axis=1)
            + ops.matmul(hot[:, 0], self.start)
            + ops.einsum("nt,nti,i->n", last, hot, self.end)
        )

    def partition(self, emissions, mask):
        alpha = emissions[:, 0] + self.start
        for t in range(1, emissions.shape[1]):
            moved = ops.logsumexp(alpha[:, :, None] + self.transitions, axis=1) + emissions[:, t]
            alpha = ops.where(mask[:, t, None] > 0, moved, alpha)
        return ops.logsumexp(alpha + self.end, axis=-1)

    def train_step(self, data):
        tokens, tags = data
        tags = ops.cast(tags, "int32")
        with tf.GradientTape() as tape:
            emissions = self(tokens, training=True)
            mask = ops.cast(ops.not_equal(tokens, 0), emissions.dtype)
            loss = ops.mean(self.partition(emissions, mask) - self.gold_score(emissions, tags, mask))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


def build():
    model = CRFTagger()
    model(ops.ones((1, 12), dtype="int32"))
    return model
