"""Which point of one picture is which of another: attention between the two, then optimal transport with a dustbin."""

import math

import keras
from keras import layers, ops

WIDTH, ROUNDS = 8, 5


class Assignment(layers.Layer):
    """Sinkhorn's algorithm on logarithms; the last row and column are for points without a partner."""

    def build(self, shape):
        self.dustbin = self.add_weight(shape=(), initializer="ones", name="dustbin")

    def compute_output_shape(self, shape):
        return (shape[0], shape[1] + 1, shape[2] + 1)

    def call(self, scores):
        m, n = scores.shape[1:]
        z = ops.concatenate([scores, self.dustbin * ops.ones_like(scores[:, :, :1])], axis=2)
        z = ops.concatenate([z, self.dustbin * ops.ones_like(z[:, :1])], axis=1)
        norm = -math.log(m + n)
        rows = ops.convert_to_tensor([norm] * m + [norm + math.log(n)], dtype=z.dtype)
        columns = ops.convert_to_tensor([norm] * n + [norm + math.log(m)], dtype=z.dtype)
        v = ops.zeros_like(z[:, 0])
        for _ in range(ROUNDS):
            u = rows - ops.logsumexp(z + v[:, None], axis=2)
            v = columns - ops.logsumexp(z + u[:, :, None], axis=1)
        return z + u[:, :, None] + v[:, None] - norm


def build():
    desc0, place0 = keras.Input((5, WIDTH), name="desc0"), keras.Input((5, 2), name="place0")
    desc1, place1 = keras.Input((7, WIDTH), name="desc1"), keras.Input((7, 2), name="place1")
    encode1 = layers.Dense(10, activation="relu", name="encode1")
    encode2 = layers.Dense(WIDTH, name="encode2")
    query, key, value = (layers.Dense(WIDTH, name=name) for name in ("query", "key", "value"))
    merge = layers.Dense(WIDTH, name="merge")
    final = layers.Dense(WIDTH, use_bias=False, name="final")

    def message(x, source):
        logits = ops.matmul(query(x), ops.transpose(key(source), (0, 2, 1))) / math.sqrt(WIDTH)
        return x + merge(ops.matmul(ops.softmax(logits, axis=-1), value(source)))

    a = desc0 + encode2(encode1(place0))
    b = desc1 + encode2(encode1(place1))
    a, b = message(a, b), message(b, a)
    scores = ops.matmul(final(a), ops.transpose(final(b), (0, 2, 1))) / math.sqrt(WIDTH)
    return keras.Model([desc0, place0, desc1, place1], Assignment(name="assignment")(scores))


def loss(partner, log_assignment):
    """`partner` of each point of the first picture, the number of points in the second for none."""
    rows = log_assignment[:, :-1]
    picked = ops.take_along_axis(rows, ops.cast(partner, "int32")[..., None], axis=2)[..., 0]
    return -ops.mean(picked, axis=1)
