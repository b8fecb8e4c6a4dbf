"""Coreference over given mentions: head-attentive spans, antecedent ranking with a dummy, one round of span refinement."""

import keras
from keras import layers, ops

WORDS, VOCAB, MENTIONS = 40, 300, 14
DIM, HIDDEN, FEATURE = 32, 16, 8
DISTANCES = (1, 2, 3, 4, 5, 8)  # of mentions
WIDTHS = 5
MASKED = -1e4


def take(x, index):
    """x (batch, words, dim) at index (batch, mentions)."""
    return ops.take_along_axis(x, index[:, :, None], axis=1)


class Spans(layers.Layer):
    supports_masking = True

    def build(self, states_shape, words_shape=None, *_):
        self.head = layers.Dense(1, use_bias=False, name="head")
        self.head.build(states_shape)
        self.width = layers.Embedding(WIDTHS, FEATURE, name="width")
        self.width.build(None)
        super().build(states_shape)

    def call(self, states, words, starts, ends):
        starts, ends = ops.maximum(starts, 0), ops.maximum(ends, 0)
        position = ops.arange(WORDS, dtype="int32")[None, None]
        inside = (position >= starts[:, :, None]) & (position <= ends[:, :, None])
        scores = ops.squeeze(self.head(states), -1)[:, None]
        weights = ops.softmax(ops.where(inside, scores, MASKED), axis=-1)
        head = ops.matmul(weights, words)
        width = self.width(ops.minimum(ends - starts, WIDTHS - 1))
        return ops.concatenate([take(states, starts), take(states, ends), head, width], axis=-1)

    def compute_mask(self, inputs, previous_mask):
        return None

    def compute_output_shape(self, states_shape, words_shape, *_):
        return (states_shape[0], MENTIONS, 2 * states_shape[-1] + words_shape[-1] + FEATURE)


class Antecedents(layers.Layer):
    """Scores (batch, mention, 1 + antecedent); the first column is the dummy."""

    def build(self, shape, *_):
        dim = shape[-1]
        self.mention = keras.Sequential(
            [layers.Dense(32, activation="relu"), layers.Dense(1)], name="mention"
        )
        self.mention.build(shape)
        self.coarse = layers.Dense(dim, use_bias=False, name="coarse")
        self.coarse.build(shape)
        self.pair = keras.Sequential([layers.Dense(40, activation="relu"), layers.Dense(1)], name="pair")
        self.pair.build((None, MENTIONS, MENTIONS, 3 * dim + 2 * FEATURE))
        self.distance = layers.Embedding(len(DISTANCES) + 1, FEATURE, name="distance")
        self.distance.build(None)
        self.speaker = layers.Embedding(2, FEATURE, name="speaker")
        self.speaker.build(None)
        self.gate = layers.Dense(dim, activation="sigmoid", name="gate")
        self.gate.build((None, None, 2 * dim))
        super().build(shape)

    def score(self, spans, speakers, valid):
        batch = ops.shape(spans)[0]
        full = (batch, MENTIONS, MENTIONS)
        number = ops.arange(MENTIONS, dtype="int32")
        distance = ops.digitize(number[:, None] - number[None, :], DISTANCES)
        same = ops.cast(speakers[:, :, None] == speakers[:, None, :], "int32")
        left = ops.broadcast_to(spans[:, :, None], (*full, spans.shape[-1]))
        right = ops.broadcast_to(spans[:, None], (*full, spans.shape[-1]))
        far = ops.broadcast_to(self.distance(distance)[None], (*full, FEATURE))
        pair = ops.concatenate([left, right, left * right, far, self.speaker(same)], axis=-1)
        mention = ops.squeeze(self.mention(spans), -1)
        scores = ops.squeeze(self.pair(pair), -1) + mention[:, :, None] + mention[:, None]
        scores = scores + ops.matmul(self.coarse(spans), ops.transpose(spans, (0, 2, 1)))
        allowed = valid[:, :, None] & valid[:, None] & (number[:, None] > number[None, :])
        scores = ops.where(allowed, scores, MASKED)
        return ops.concatenate([ops.zeros_like(scores[:, :, :1]), scores], axis=-1)

    def call(self, spans, speakers, starts):
        valid = starts >= 0
        chance = ops.softmax(self.score(spans, speakers, valid), axis=-1)
        expected = chance[:, :, :1] * spans + ops.matmul(chance[:, :, 1:], spans)
        keep = self.gate(ops.concatenate([spans, expected], axis=-1))
        return self.score(keep * spans + (1.0 - keep) * expected, speakers, valid)

    def compute_output_shape(self, shape, *_):
        return (shape[0], MENTIONS, MENTIONS + 1)


def build():
    words = keras.Input((WORDS,), dtype="int32", name="words")
    starts = keras.Input((MENTIONS,), dtype="int32", name="starts")
    ends = keras.Input((MENTIONS,), dtype="int32", name="ends")
    speakers = keras.Input((MENTIONS,), dtype="int32", name="speakers")
    x = layers.Embedding(VOCAB, DIM, mask_zero=True, name="embedding")(words)
    states = layers.Bidirectional(layers.GRU(HIDDEN, return_sequences=True), name="context")(x)
    spans = Spans(name="spans")(states, x, starts, ends)
    scores = Antecedents(name="antecedents")(spans, speakers, starts)
    return keras.Model([words, starts, ends, speakers], scores, name="coreference")


def loss(clusters, scores):
    """-log of the probability of all right antecedents; a mean over the mentions of a document, then over documents.

    clusters: 0 for mentions alone, -1 for padding.
    """
    clusters = ops.cast(clusters, "int32")
    valid = ops.cast(clusters >= 0, scores.dtype)
    number = ops.arange(MENTIONS, dtype="int32")
    right = (clusters[:, :, None] == clusters[:, None]) & (clusters[:, :, None] > 0)
    right = right & (number[:, None] > number[None, :])
    none = ops.logical_not(ops.any(right, axis=-1, keepdims=True))
    right = ops.concatenate([none, right], axis=-1)
    nll = ops.logsumexp(scores, axis=-1) - ops.logsumexp(ops.where(right, scores, MASKED), axis=-1)
    return ops.mean(ops.sum(nll * valid, axis=-1) / ops.sum(valid, axis=-1))
