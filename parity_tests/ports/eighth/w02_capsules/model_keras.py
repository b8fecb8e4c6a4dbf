"""Capsules with routing by agreement for small pictures."""

import keras
from keras import layers, ops


def squash(v, axis=-1):
    n2 = ops.sum(ops.square(v), axis=axis, keepdims=True)
    return v * n2 / ((1.0 + n2) * ops.sqrt(n2 + 1e-7))


class PrimaryCapsules(layers.Layer):
    def __init__(self, kinds, size, **kwargs):
        super().__init__(**kwargs)
        self.size = size
        self.conv = layers.Conv2D(kinds * size, 3, strides=2, name="conv")

    def build(self, shape):
        self.conv.build(shape)

    def call(self, x):
        x = self.conv(x)
        return squash(ops.reshape(x, (-1, x.shape[1] * x.shape[2] * x.shape[3] // self.size, self.size)))


class ClassCapsules(layers.Layer):
    def __init__(self, classes, size, rounds=3, **kwargs):
        super().__init__(**kwargs)
        self.classes, self.size, self.rounds = classes, size, rounds

    def build(self, shape):
        self.transform = self.add_weight(
            name="transform",
            shape=(shape[1], self.classes, shape[2], self.size),
            initializer=keras.initializers.RandomNormal(stddev=0.2),
        )
        self.prior = self.add_weight(name="prior", shape=(shape[1], self.classes), initializer="zeros")

    def call(self, u):
        votes = ops.einsum("bid,icde->bice", u, self.transform)
        logits = ops.zeros_like(votes[..., 0]) + self.prior
        for r in range(self.rounds):
            share = ops.softmax(logits, axis=2)
            v = squash(ops.sum(share[..., None] * votes, axis=1))
            if r < self.rounds - 1:
                logits = logits + ops.sum(votes * v[:, None], axis=-1)
        return v


class CapsuleNet(keras.Model):
    def __init__(self, classes=4, **kwargs):
        super().__init__(**kwargs)
        self.conv = layers.Conv2D(16, 5, strides=2, activation="relu", name="stem")
        self.primary = PrimaryCapsules(4, 8, name="primary")
        self.digits = ClassCapsules(classes, 6, name="digits")

    def call(self, x):
        v = self.digits(self.primary(self.conv(x)))
        return ops.sqrt(ops.sum(ops.square(v), axis=-1) + 1e-7)


def build():
    model = CapsuleNet()
    model(ops.zeros((1, 14, 14, 1)))
    return model


def margin_loss(y_true, lengths):
    present = ops.one_hot(
        ops.cast(ops.reshape(y_true, (-1,)), "int32"), lengths.shape[-1], dtype=lengths.dtype
    )
    miss = present * ops.square(ops.maximum(0.9 - lengths, 0))
    false = (1 - present) * ops.square(ops.maximum(lengths - 0.1, 0))
    return ops.sum(miss + 0.5 * false, axis=-1)
