"""Matches the keypoints of two pictures by optimal transport, with a bin for those without a partner."""

import math

import keras
from keras import layers, ops

LEFT, RIGHT, DESCRIPTOR = 5, 7, 6


class Transport(layers.Layer):
    """Log-domain Sinkhorn with a learnt score for the bins; gives log assignments."""

    def __init__(self, iterations=4, **kwargs):
        super().__init__(**kwargs)
        self.iterations = iterations

    def build(self, shape):
        self.bin = self.add_weight(shape=(), initializer="ones", name="bin")

    def call(self, scores):
        _, m, n = scores.shape
        rows = ops.broadcast_to(self.bin, (ops.shape(scores)[0], m, 1))
        columns = ops.broadcast_to(self.bin, (ops.shape(scores)[0], 1, n + 1))
        scores = ops.concatenate([ops.concatenate([scores, rows], axis=2), columns], axis=1)

        # A keypoint has mass 1, a bin could take all keypoints of the other picture.
        total = math.log(m + n)
        log_mu = ops.convert_to_tensor([0.0] * m + [math.log(n)], dtype=scores.dtype) - total
        log_nu = ops.convert_to_tensor([0.0] * n + [math.log(m)], dtype=scores.dtype) - total
        u, v = ops.zeros_like(scores[:, :, 0]), ops.zeros_like(scores[:, 0])
        for _ in range(self.iterations):
            u = log_mu - ops.logsumexp(scores + v[:, None], axis=2)
            v = log_nu - ops.logsumexp(scores + u[:, :, None], axis=1)
        return scores + u[:, :, None] + v[:, None] + total

    def compute_output_shape(self, shape):
        return (shape[0], shape[1] + 1, shape[2] + 1)


def cross_attention(query, source, name):
    width = query.shape[-1]
    q = layers.Dense(width, name=f"{name}_q")(query)
    k = layers.Dense(width, name=f"{name}_k")(source)
    v = layers.Dense(width, name=f"{name}_v")(source)
    message = layers.Attention(use_scale=False, name=f"{name}_attend")([q, v, k])
    return layers.Dense(width, activation="tanh", name=f"{name}_merge")(
        layers.Concatenate()([query, message])
    )


def build():
    inputs, states = {}, {}
    describe = layers.Dense(12, name="describe")
    locate = keras.Sequential(
        [keras.Input((None, 2)), layers.Dense(12, activation="relu"), layers.Dense(12)], name="locate"
    )
    for side, count in (("left", LEFT), ("right", RIGHT)):
        points = keras.Input((count, 2), name=f"{side}_points")
        looks = keras.Input((count, DESCRIPTOR), name=f"{side}_looks")
        inputs[points.name], inputs[looks.name] = points, looks
        states[side] = describe(looks) + locate(points)
    left = cross_attention(states["left"], states["right"], "to_left")
    right = cross_attention(states["right"], left, "to_right")
    scores = ops.einsum("bmd,bnd->bmn", left, right) / math.sqrt(left.shape[-1])
    return keras.Model(inputs, Transport(name="transport")(scores))


def loss(y_true, y_pred):
    """y_true is 1 at the true matches, bins included."""
    return -ops.sum(y_true * y_pred, axis=(1, 2)) / ops.sum(y_true, axis=(1, 2))
