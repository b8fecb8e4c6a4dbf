"""Dueling DQN on stacked frames (height, width, frames)."""

import keras
from keras import layers, ops

ACTIONS = 5


class DuelingDQN(keras.Model):
    def __init__(self, actions=ACTIONS, **kw):
        super().__init__(**kw)
        self.scale = layers.Rescaling(1.0 / 256)
        self.conv1 = layers.Conv2D(8, 4, strides=2, activation="relu")
        self.conv2 = layers.Conv2D(12, 3, activation="relu")
        self.flatten = layers.Flatten()
        self.norm = layers.LayerNormalization()
        self.trunk = layers.Dense(32, activation="relu")
        self.value = keras.Sequential([layers.Dense(16, activation="relu"), layers.Dense(1)], name="value")
        self.advantage = keras.Sequential(
            [layers.Dense(16, activation="relu"), layers.Dense(actions)], name="advantage"
        )

    def call(self, obs):
        x = self.conv2(self.conv1(self.scale(obs)))
        x = self.trunk(self.norm(self.flatten(x)))
        a = self.advantage(x)
        return self.value(x) + a - ops.mean(a, axis=-1, keepdims=True)


def build():
    model = DuelingDQN()
    model(ops.zeros((1, 12, 12, 4)))
    return model


def td_loss(y_true, q):
    """Huber loss of the taken action's value; y_true holds (action, target)"""
    taken = ops.one_hot(ops.cast(y_true[:, 0], "int32"), ACTIONS, dtype=q.dtype)
    error = ops.abs(y_true[:, 1] - ops.sum(q * taken, axis=-1))
    return ops.where(error <= 1.0, 0.5 * ops.square(error), error - 0.5)


def optimizer():
    return keras.optimizers.RMSprop(
        learning_rate=1e-3, rho=0.95, momentum=0.9, epsilon=1e-2, centered=True, clipvalue=0.1
    )
