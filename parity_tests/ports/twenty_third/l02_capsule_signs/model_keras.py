"""Capsule network for thumbnails of traffic signs (dynamic routing)."""

import keras
from keras import layers, ops

N_CLASSES = 6
EPS = 1e-7


def squash(s, axis=-1):
    """Shrinks short vectors to zero and long ones to just below unit length."""
    sq = ops.sum(ops.square(s), axis=axis, keepdims=True)
    return sq / (1.0 + sq) * s / ops.sqrt(sq + EPS)


class RoutedCapsules(layers.Layer):
    """Fully connected capsules with routing by agreement."""

    def __init__(self, n_caps, dim, routings=3, **kwargs):
        super().__init__(**kwargs)
        self.n_caps, self.dim, self.routings = n_caps, dim, routings

    def build(self, input_shape):
        self.transform = self.add_weight(
            name="transform",
            shape=(input_shape[1], self.n_caps, input_shape[2], self.dim),
            initializer=keras.initializers.RandomNormal(stddev=0.4),
        )
        super().build(input_shape)

    def call(self, u):
        # votes: (batch, input capsule i, output capsule j, dim)
        votes = ops.einsum("nid,ijde->nije", u, self.transform)
        constant = ops.stop_gradient(votes)
        logits = ops.zeros_like(votes[..., 0])
        for r in range(self.routings):
            coupling = ops.softmax(logits, axis=2)[..., None]
            if r == self.routings - 1:
                return squash(ops.sum(coupling * votes, axis=1))
            v = squash(ops.sum(coupling * constant, axis=1))
            logits = logits + ops.sum(constant * v[:, None], axis=-1)


def build():
    image = keras.Input((16, 16, 3), name="image")
    x = layers.Conv2D(16, 5, strides=2, activation="relu", name="conv")(image)
    x = layers.Conv2D(32, 3, strides=2, name="primary")(x)
    x = layers.Reshape((-1, 8), name="primary_caps")(x)
    x = layers.Lambda(squash, name="primary_squash")(x)
    x = RoutedCapsules(N_CLASSES, 10, name="sign_caps")(x)
    lengths = layers.Lambda(lambda v: ops.sqrt(ops.sum(ops.square(v), axis=-1) + EPS), name="length")(x)
    return keras.Model(image, lengths, name="capsnet")


def margin_loss(y_true, y_pred):
    """Margin loss of Sabour et al.; y_true are class numbers."""
    hot = ops.one_hot(ops.cast(ops.reshape(y_true, (-1,)), "int32"), N_CLASSES, dtype=y_pred.dtype)
    pos = ops.square(ops.maximum(0.0, 0.9 - y_pred))
    neg = ops.square(ops.maximum(0.0, y_pred - 0.1))
    return ops.mean(ops.sum(hot * pos + 0.5 * (1.0 - hot) * neg, axis=-1))
