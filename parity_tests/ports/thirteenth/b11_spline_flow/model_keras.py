"""Density of four measurements given a kind: coupling layers with rational-quadratic splines."""

import math

import keras
import tensorflow as tf
from keras import layers, ops

MIN_BIN, MIN_SLOPE = 1e-2, 1e-2


def spline(x, widths, heights, slopes, bound):
    """x (n, d); widths, heights (n, d, k); slopes (n, d, k - 1). Returns y and log |dy/dx|; identity outside."""
    bins = widths.shape[-1]
    inside = ops.logical_and(x >= -bound, x <= bound)
    x_in = ops.clip(x, -bound, bound)
    edge = math.log(math.exp(1 - MIN_SLOPE) - 1)
    slopes = ops.pad(slopes, [[0, 0], [0, 0], [1, 1]], constant_values=edge)
    slopes = MIN_SLOPE + ops.softplus(slopes)

    def knots(raw):
        share = MIN_BIN + (1 - MIN_BIN * bins) * ops.softmax(raw, axis=-1)
        right = ops.cumsum(share, axis=-1)
        right = ops.concatenate(
            [ops.zeros_like(right[..., :1]), right[..., :-1], ops.ones_like(right[..., :1])], -1
        )
        return 2 * bound * right - bound

    xs, ys = knots(widths), knots(heights)
    index = ops.sum(ops.cast(x_in[..., None] >= xs[..., 1:-1], "int32"), axis=-1, keepdims=True)

    def at(values, offset=0):
        return ops.take_along_axis(values, index + offset, axis=-1)[..., 0]

    x0, x1, y0, y1, d0, d1 = at(xs), at(xs, 1), at(ys), at(ys, 1), at(slopes), at(slopes, 1)
    delta = (y1 - y0) / (x1 - x0)
    u = (x_in - x0) / (x1 - x0)
    v = u * (1 - u)
    denominator = delta + (d0 + d1 - 2 * delta) * v
    y = y0 + (y1 - y0) * (delta * ops.square(u) + d0 * v) / denominator
    slope = ops.square(delta) * (d1 * ops.square(u) + 2 * delta * v + d0 * ops.square(1 - u))
    logdet = ops.log(slope) - 2 * ops.log(denominator)
    return ops.where(inside, y, x), ops.where(inside, logdet, ops.zeros_like(logdet))


class Flow(keras.Model):
    def __init__(self, features=4, kinds=2, couplings=3, hidden=14, bins=5, bound=2.5):
        super().__init__()
        self.half, self.bins, self.bound = features // 2, bins, bound
        self.kind = layers.Embedding(kinds, 3)
        outputs = self.half * (3 * bins - 1)
        self.nets = [
            keras.Sequential([layers.Dense(hidden, activation="tanh"), layers.Dense(outputs)])
            for _ in range(couplings)
        ]

    def call(self, inputs):
        x, context = inputs["point"], self.kind(inputs["kind"])
        total = ops.zeros_like(x[:, 0])
        for net in self.nets:
            a, b = ops.split(x, 2, axis=-1)
            raw = ops.reshape(net(ops.concatenate([a, context], -1)), (-1, self.half, 3 * self.bins - 1))
            w, h, s = raw[..., : self.bins], raw[..., self.bins : 2 * self.bins], raw[..., 2 * self.bins :]
            b, logdet = spline(b, w, h, s, self.bound)
            total = total + ops.sum(logdet, -1)
            x = ops.concatenate([b, a], -1)
        normal = -0.5 * ops.sum(ops.square(x), -1) - 0.5 * x.shape[-1] * math.log(2 * math.pi)
        return normal + total

    @property
    def metrics(self):
        return []  # train_step reports its loss itself

    def train_step(self, inputs):
        with tf.GradientTape() as tape:
            loss = -ops.mean(self(inputs, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


def build():
    return Flow()
