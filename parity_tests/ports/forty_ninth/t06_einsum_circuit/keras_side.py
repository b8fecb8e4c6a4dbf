"""Probabilistic circuit (RAT-SPN in einsum form) over 16 assay readings, some of them
missing; one root a class, trained by a mixture of likelihood and cross entropy."""

import math

import keras
import numpy as np
from keras import layers, ops

VARS, REPLICAS, K, CLASSES = 16, 3, 5, 4
ORDERS = np.stack([np.random.RandomState(70 + r).permutation(VARS) for r in range(REPLICAS)])


class GaussianLeaves(layers.Layer):
    """log N(x_d; mean, sigma) of every replica, variable and component; 0 where missing."""

    def build(self, shapes):
        self.mean = self.add_weight(
            name="mean",
            shape=(REPLICAS, VARS, K),
            initializer=keras.initializers.RandomNormal(stddev=1.0, seed=5),
        )
        self.raw = self.add_weight(name="raw", shape=(REPLICAS, VARS, K), initializer="zeros")

    def call(self, x, observed):
        sigma = 0.2 + 1.3 * ops.sigmoid(self.raw)
        z = (x[:, None, :, None] - self.mean) / sigma
        logp = -0.5 * ops.square(z) - ops.log(sigma) - 0.5 * math.log(2.0 * math.pi)
        return logp * observed[:, None, :, None]


class EinsumLayer(layers.Layer):
    """Neighbouring regions are multiplied (all pairs of components) and summed."""

    def __init__(self, regions, outputs, **kwargs):
        super().__init__(**kwargs)
        self.regions, self.outputs_ = regions, outputs

    def build(self, shape):
        self.logits = self.add_weight(
            name="logits",
            shape=(REPLICAS, self.regions, self.outputs_, K, K),
            initializer=keras.initializers.RandomNormal(stddev=0.7, seed=self.regions),
        )

    def call(self, logp):
        left, right = logp[:, :, 0::2], logp[:, :, 1::2]
        a = ops.max(left, axis=-1, keepdims=True)
        b = ops.max(right, axis=-1, keepdims=True)
        flat = ops.reshape(self.logits, (REPLICAS, self.regions, self.outputs_, K * K))
        w = ops.reshape(ops.softmax(flat, axis=-1), self.logits.shape)
        mixed = ops.einsum("brpi,brpj,rpoij->brpo", ops.exp(left - a), ops.exp(right - b), w)
        return ops.log(mixed) + a + b


class Circuit(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.leaves = GaussianLeaves(name="leaves")
        self.sums = [
            EinsumLayer(8, K, name="sums8"),
            EinsumLayer(4, K, name="sums4"),
            EinsumLayer(2, K, name="sums2"),
            EinsumLayer(1, CLASSES, name="roots"),
        ]
        self.choice = self.add_weight(name="choice", shape=(CLASSES, REPLICAS), initializer="zeros")

    def call(self, inputs):
        x, observed = inputs
        logp = self.leaves(x, observed)
        logp = ops.stack([ops.take(logp[:, r], ORDERS[r], axis=1) for r in range(REPLICAS)], axis=1)
        for layer in self.sums:
            logp = layer(logp)
        roots = ops.transpose(ops.squeeze(logp, 2), (0, 2, 1))
        return ops.logsumexp(roots + ops.log_softmax(self.choice, axis=-1), axis=-1)


def loss(targets, outputs):
    labels = ops.cast(ops.reshape(targets, (-1,)), "int32")
    pick = ops.one_hot(labels, CLASSES, dtype=outputs.dtype)
    joint = ops.sum(pick * outputs, axis=-1)
    return 0.6 * (ops.logsumexp(outputs, axis=-1) - joint) - 0.4 * joint / VARS


def build():
    model = Circuit(name="circuit")
    model((ops.zeros((1, VARS)), ops.ones((1, VARS))))
    return model
