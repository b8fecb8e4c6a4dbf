"""ESIM: does a claim follow from an evidence sentence?"""

import keras
from keras import layers, ops

VOCAB, EMBED, HIDDEN, CLASSES = 300, 32, 24, 3


class SoftAlign(layers.Layer):
    """Each token of one sentence as a mixture of the other sentence's tokens, both ways."""

    def call(self, a, b, mask_a, mask_b):
        scores = ops.einsum("bid,bjd->bij", a, b)
        big = ops.cast(-1e9, scores.dtype)
        to_b = ops.softmax(ops.where(mask_b[:, None, :], scores, big), axis=2)
        to_a = ops.softmax(ops.where(mask_a[:, :, None], scores, big), axis=1)
        return ops.einsum("bij,bjd->bid", to_b, b), ops.einsum("bij,bid->bjd", to_a, a)


class MaskedPooling(layers.Layer):
    """Mean and maximum over the tokens that are there."""

    def call(self, x, mask):
        m = ops.cast(mask, x.dtype)[..., None]
        mean = ops.sum(x * m, axis=1) / ops.sum(m, axis=1)
        peak = ops.max(ops.where(mask[..., None], x, ops.cast(-1e9, x.dtype)), axis=1)
        return ops.concatenate([mean, peak], axis=-1)


def build():
    evidence = keras.Input((None,), dtype="int32", name="evidence")
    claim = keras.Input((None,), dtype="int32", name="claim")
    embed = layers.Embedding(VOCAB, EMBED, name="tokens")
    encode = layers.Bidirectional(layers.LSTM(HIDDEN, return_sequences=True), name="encoder")
    project = layers.Dense(HIDDEN, activation="relu", name="projection")
    compose = layers.Bidirectional(layers.LSTM(HIDDEN, return_sequences=True), name="composition")
    pool = MaskedPooling(name="pooling")

    mask_a, mask_b = ops.not_equal(evidence, 0), ops.not_equal(claim, 0)
    a = encode(embed(evidence), mask=mask_a)
    b = encode(embed(claim), mask=mask_b)
    a_hat, b_hat = SoftAlign(name="alignment")(a, b, mask_a, mask_b)

    def enhance(x, x_hat, mask):
        m = layers.Concatenate()([x, x_hat, x - x_hat, x * x_hat])
        return pool(compose(project(m), mask=mask), mask)

    v = layers.Concatenate()([enhance(a, a_hat, mask_a), enhance(b, b_hat, mask_b)])
    v = layers.Dense(HIDDEN, activation="tanh", name="hidden")(v)
    return keras.Model([evidence, claim], layers.Dense(CLASSES, name="verdict")(v), name="esim")
