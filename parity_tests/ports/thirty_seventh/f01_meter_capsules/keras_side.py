"""Digits of a water meter's wheels, read by a small capsule network (6 classes of wheel positions)."""

import keras
from keras import layers, ops


def squash(s, axis=-1):
    sq = ops.sum(ops.square(s), axis=axis, keepdims=True)
    return sq / (1.0 + sq) * s / ops.sqrt(sq + 1e-7)


class Capsules(layers.Layer):
    def __init__(self, num, dim, routings=3, **kw):
        super().__init__(**kw)
        self.num, self.dim, self.routings = num, dim, routings

    def build(self, shape):
        self.kernel = self.add_weight(
            name="kernel",
            shape=(shape[1], self.num, shape[2], self.dim),
            initializer=keras.initializers.RandomNormal(stddev=0.3),
        )

    def call(self, u):
        u_hat = ops.einsum("bid,ijdo->bijo", u, self.kernel)
        logits = ops.zeros_like(u_hat[..., 0])
        for it in range(self.routings):
            c = ops.softmax(logits, axis=-1)
            v = squash(ops.sum(c[..., None] * u_hat, axis=1))
            if it < self.routings - 1:
                logits = logits + ops.einsum("bijo,bjo->bij", u_hat, v)
        return v


class Length(layers.Layer):
    def call(self, v):
        return ops.sqrt(ops.sum(ops.square(v), axis=-1) + 1e-7)


def margin_loss(y, lengths):
    t = ops.one_hot(ops.cast(ops.reshape(y, (-1,)), "int32"), 6, dtype=lengths.dtype)
    per = t * ops.square(ops.relu(0.9 - lengths)) + 0.5 * (1 - t) * ops.square(ops.relu(lengths - 0.1))
    return ops.mean(ops.sum(per, axis=-1))


def build():
    inp = keras.Input((12, 12), name="x")
    h = layers.Reshape((12, 12, 1))(inp)
    h = layers.Conv2D(16, 5, activation="relu", name="conv")(h)
    h = layers.Conv2D(16, 3, strides=2, name="primary")(h)
    h = layers.Reshape((18, 8))(h)
    h = layers.Lambda(squash, name="squash")(h)
    v = Capsules(6, 6, name="digits")(h)
    return keras.Model(inp, Length(name="length")(v))
