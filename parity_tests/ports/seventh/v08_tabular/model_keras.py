"""House prices from a table: periodic features of the numbers, then a residual network, L2 on every kernel."""

import math

import keras
from keras import layers, ops


class Periodic(layers.Layer):
    """Each number becomes sines and cosines of learnt frequencies, followed by a dense layer for each number."""

    def __init__(self, frequencies=4, units=3, sigma=0.5, **kwargs):
        super().__init__(**kwargs)
        self.frequencies, self.units, self.sigma = frequencies, units, sigma

    def build(self, shape):
        normal = keras.initializers.RandomNormal(stddev=self.sigma)
        self.rates = self.add_weight(shape=(shape[-1], self.frequencies), initializer=normal, name="rates")
        self.mix = self.add_weight(
            shape=(shape[-1], 2 * self.frequencies, self.units), initializer="he_normal", name="mix"
        )

    def call(self, x):
        angle = 2 * math.pi * x[:, :, None] * self.rates
        waves = ops.concatenate([ops.cos(angle), ops.sin(angle)], axis=-1)
        return ops.relu(ops.einsum("bfk,fku->bfu", waves, self.mix))


def dense(units, **kwargs):
    return layers.Dense(units, kernel_regularizer=keras.regularizers.L2(1e-3), **kwargs)


def build(features=7, width=24, blocks=3):
    table = keras.Input((features,), name="table")
    x = layers.Flatten()(Periodic()(table))
    x = dense(width, name="stem")(x)
    for i in range(blocks):
        y = layers.BatchNormalization(momentum=0.9, name=f"norm{i}")(x)
        y = dense(2 * width, activation="relu", name=f"up{i}")(y)
        y = layers.Dropout(0.1)(y)
        y = dense(width, name=f"down{i}")(y)
        x = layers.Add()([x, y])
    x = layers.ReLU()(layers.BatchNormalization(momentum=0.9, name="last_norm")(x))
    return keras.Model(table, dense(1, name="price")(x))


def optimizer():
    return keras.optimizers.SGD(0.02, momentum=0.9, nesterov=True)
