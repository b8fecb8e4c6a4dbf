"""Routing of customer mails to six desks with a recurrent convolutional text classifier."""

import keras
from keras import layers, ops

VOCAB = 300
UNK = 1
DESKS = 6
SENDER_GROUPS = 9


@keras.saving.register_keras_serializable("mail")
class Vocabulary(layers.Layer):
    """Words that came later than the frozen vocabulary are read as [UNK]."""

    def call(self, tokens):
        return ops.where(tokens >= VOCAB, UNK, tokens)


@keras.saving.register_keras_serializable("mail")
class Neighbours(layers.Layer):
    """What was read before a word, and what is still to come after it."""

    def call(self, forward, backward):
        left = ops.pad(forward[:, :-1], [[0, 0], [1, 0], [0, 0]])
        right = ops.pad(backward[:, 1:], [[0, 0], [0, 1], [0, 0]])
        return left, right


@keras.saving.register_keras_serializable("mail")
class TopMean(layers.Layer):
    """Mean of the k largest values over the words of a mail, feature by feature."""

    def __init__(self, k, **kwargs):
        super().__init__(**kwargs)
        self.k = k

    def call(self, x, ids):
        real = ops.not_equal(ids, 0)
        count = ops.sum(ops.cast(real, "int32"), axis=1)
        scores = ops.where(real[:, :, None], x, -1e9)
        best, _ = ops.top_k(ops.transpose(scores, (0, 2, 1)), self.k)
        used = ops.minimum(count, self.k)
        keep = ops.arange(self.k, dtype="int32")[None, :] < used[:, None]
        total = ops.sum(ops.where(keep[:, None, :], best, 0.0), axis=-1)
        return total / ops.cast(used, x.dtype)[:, None]


def build():
    tokens = keras.Input((40,), dtype="int32", name="tokens")
    sender = keras.Input((1,), dtype="int32", name="sender")
    ids = Vocabulary()(tokens)
    words = layers.Embedding(VOCAB, 24, mask_zero=True, name="words")(ids)
    fw, bw = layers.Bidirectional(layers.GRU(16, return_sequences=True), merge_mode=None, name="context")(
        words
    )
    left, right = Neighbours()(fw, bw)
    x = layers.Concatenate(name="word_in_context")([left, words, right])
    x = layers.Dense(32, activation="tanh", name="latent")(x)
    x = TopMean(3, name="pool")(x, ids)
    who = layers.Flatten()(layers.Embedding(SENDER_GROUPS, 4, name="sender_group")(sender))
    x = layers.Concatenate()([x, who])
    x = layers.Dense(24, activation="relu", name="hidden")(x)
    logits = layers.Dense(DESKS, name="desk")(x)
    return keras.Model([tokens, sender], logits)
