"""Regimes of a machine: a hidden Markov model whose transitions depend on its controls."""

import math

import keras
from keras import initializers, layers, ops


class RegimeFilter(layers.Layer):
    """Gives each step's log likelihood, given the steps before (normalised forward recursion)."""

    def __init__(self, states, **kwargs):
        super().__init__(**kwargs)
        self.states = states

    def build(self, sensors_shape, controls_shape):
        k, width, inputs = self.states, sensors_shape[-1], controls_shape[-1]
        normal = initializers.RandomNormal(stddev=0.5)
        self.start = self.add_weight(shape=(k,), initializer="zeros", name="start")
        self.transition = self.add_weight(
            shape=(k, k), initializer=initializers.Identity(2.0), name="transition"
        )
        self.control = self.add_weight(shape=(inputs, k, k), initializer=normal, name="control")
        self.mean = self.add_weight(shape=(k, width), initializer=normal, name="mean")
        self.log_scale = self.add_weight(shape=(k, width), initializer="zeros", name="log_scale")

    def emission(self, sensors):
        z = (sensors[:, :, None] - self.mean) * ops.exp(-self.log_scale)
        return ops.sum(-0.5 * ops.square(z) - self.log_scale - 0.5 * math.log(2 * math.pi), axis=-1)

    def call(self, sensors, controls):
        emission = self.emission(sensors)
        largest = ops.stop_gradient(ops.max(emission, axis=-1, keepdims=True))
        likelihood = ops.exp(emission - largest)
        moves = ops.softmax(self.transition + ops.einsum("bti,ijk->btjk", controls, self.control), axis=-1)
        belief = ops.softmax(self.start)[None]
        evidence = []
        for t in range(sensors.shape[1]):
            if t > 0:
                belief = ops.einsum("bj,bjk->bk", belief, moves[:, t])
            joint = belief * likelihood[:, t]
            total = ops.sum(joint, axis=-1, keepdims=True)
            evidence.append(ops.log(total[:, 0]) + largest[:, t, 0])
            belief = joint / total
        return ops.stack(evidence, axis=1)

    def compute_output_shape(self, sensors_shape, controls_shape):
        return sensors_shape[:2]


def build():
    sensors = keras.Input((12, 3), name="sensors")
    controls = keras.Input((12, 2), name="controls")
    return keras.Model([sensors, controls], RegimeFilter(4, name="hmm")(sensors, controls))


def loss(y_true, y_pred):
    """y_true says which steps are real; the rest is padding at the end."""
    return -ops.sum(y_true * y_pred, axis=1) / ops.sum(y_true, axis=1)
