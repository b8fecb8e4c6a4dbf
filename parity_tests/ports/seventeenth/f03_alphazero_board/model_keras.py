"""The network of AlphaZero for a board of 6 x 6: a residual tower with a policy and a value."""

import keras
from keras import layers, ops

L2 = 1e-3


def conv(x, filters, size, name):
    x = layers.Conv2D(
        filters, size, padding="same", use_bias=False, kernel_regularizer=keras.regularizers.L2(L2), name=name
    )(x)
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=name + "_norm")(x)


def dense(x, units, name, activation=None):
    return layers.Dense(units, activation, kernel_regularizer=keras.regularizers.L2(L2), name=name)(x)


class LegalLogProbabilities(layers.Layer):
    def call(self, logits, legal):
        return legal * ops.log_softmax(ops.where(legal > 0, logits, -1e9))


def build():
    board = keras.Input((6, 6, 3), name="board")
    legal = keras.Input((36,), name="legal")
    x = layers.ReLU()(conv(board, 16, 3, "stem"))
    for block in range(2):
        y = layers.ReLU()(conv(x, 16, 3, f"block{block}_a"))
        y = conv(y, 16, 3, f"block{block}_b")
        x = layers.ReLU()(layers.Add()([x, y]))
    p = layers.Flatten()(layers.ReLU()(conv(x, 2, 1, "policy_conv")))
    policy = LegalLogProbabilities(name="log_policy")(dense(p, 36, "policy_logits"), legal)
    v = layers.Flatten()(layers.ReLU()(conv(x, 1, 1, "value_conv")))
    value = dense(dense(v, 16, "value_hidden", "relu"), 1, "value_out", "tanh")
    return keras.Model([board, legal], {"policy": policy, "value": value}, name="alphazero")


def policy_loss(target, log_policy):
    return -ops.sum(target * log_policy, axis=-1)


def optimizer():
    rate = keras.optimizers.schedules.PiecewiseConstantDecay([6, 12], [0.05, 0.01, 0.002])
    return keras.optimizers.SGD(rate, momentum=0.9)
