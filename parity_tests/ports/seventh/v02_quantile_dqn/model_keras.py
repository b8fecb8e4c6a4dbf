"""Dueling quantile-regression DQN for small frame stacks."""

import keras
from keras import layers, ops

ACTIONS = 4
QUANTILES = 11


class QuantileNetwork(keras.Model):
    def __init__(self, actions=ACTIONS, quantiles=QUANTILES, **kwargs):
        super().__init__(**kwargs)
        self.actions, self.quantiles = actions, quantiles
        self.torso = keras.Sequential(
            [
                layers.Rescaling(1 / 256),
                layers.Conv2D(8, 4, strides=2, activation="relu"),
                layers.Conv2D(12, 3, activation="relu"),
                layers.Flatten(),
            ]
        )
        self.value_hidden = layers.Dense(24, activation="relu")
        self.value = layers.Dense(quantiles)
        self.advantage_hidden = layers.Dense(24, activation="relu")
        self.advantage = layers.Dense(actions * quantiles)

    def call(self, frames):
        x = self.torso(frames)
        value = self.value(self.value_hidden(x))[:, None, :]
        advantage = ops.reshape(self.advantage(self.advantage_hidden(x)), (-1, self.actions, self.quantiles))
        return value + advantage - ops.mean(advantage, axis=1, keepdims=True)


def build():
    model = QuantileNetwork()
    model(ops.zeros((1, 12, 12, 4)))
    return model


def quantile_huber(y_true, y_pred, kappa=1.0):
    """y_true: the action taken, then the target's quantiles. One loss per transition."""
    action = ops.cast(y_true[:, 0], "int32")
    target = y_true[:, 1:]
    chosen = ops.sum(y_pred * ops.one_hot(action, ACTIONS, dtype=y_pred.dtype)[:, :, None], axis=1)
    error = target[:, None, :] - chosen[:, :, None]  # (batch, predicted quantile, target quantile)
    size = ops.abs(error)
    huber = ops.where(size <= kappa, 0.5 * ops.square(error), kappa * (size - 0.5 * kappa))
    tau = (ops.arange(QUANTILES, dtype=y_pred.dtype) + 0.5) / QUANTILES
    weight = ops.abs(tau[None, :, None] - ops.cast(error < 0, y_pred.dtype))
    return ops.sum(ops.mean(weight * huber / kappa, axis=2), axis=1)
