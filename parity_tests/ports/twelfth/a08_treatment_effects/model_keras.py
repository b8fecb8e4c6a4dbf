"""What a treatment does (Dragonnet): outcomes with and without it, its propensity, and a correction term.

Targets are pairs (outcome, treated); samples have weights of the survey.
"""

import keras
from keras import layers, ops

L2 = 1 / 128


def dense(units, activation=None, name=None):
    return layers.Dense(units, activation=activation, kernel_regularizer=keras.regularizers.L2(L2), name=name)


class Epsilon(layers.Layer):
    def build(self, shape):
        self.epsilon = self.add_weight(shape=(1,), initializer="zeros", name="epsilon")

    def call(self, x):
        return self.epsilon * ops.ones_like(x)


def build():
    x = keras.Input((8,), name="x")
    h = dense(12, "elu", "trunk1")(x)
    h = layers.BatchNormalization(name="norm")(h)
    h = dense(12, "elu", "trunk2")(h)
    y0 = dense(1, None, "control")(dense(6, "elu", "control_hidden")(h))
    y1 = dense(1, None, "treated")(dense(6, "elu", "treated_hidden")(h))
    t = dense(1, None, "propensity")(h)
    return keras.Model(x, layers.Concatenate()([y0, y1, t, Epsilon(name="correction")(t)]))


def loss(targets, outputs):
    y, t = targets[:, 0], targets[:, 1]
    y0, y1, logit, epsilon = outputs[:, 0], outputs[:, 1], outputs[:, 2], outputs[:, 3]
    predicted = t * y1 + (1 - t) * y0
    g = ops.clip(ops.sigmoid(logit), 0.01, 0.99)
    h = t / g - (1 - t) / (1 - g)
    propensity = ops.softplus(logit) - t * logit
    return ops.square(y - predicted) + propensity + 0.5 * ops.square(y - predicted - epsilon * h)


def optimizer():
    return keras.optimizers.SGD(0.01, momentum=0.875)
