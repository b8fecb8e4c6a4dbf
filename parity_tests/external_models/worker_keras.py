"""A Keras net for the tests of foreign workers; its port is in worker_torch.py."""

import keras
from keras import layers


def net():
    return keras.Sequential(
        [
            keras.Input((7, 7, 2)),
            layers.Conv2D(3, 3, strides=2, padding="same", name="conv"),
            layers.BatchNormalization(name="norm"),
            layers.LeakyReLU(name="leaky"),
            layers.Flatten(name="flat"),
            layers.Dense(6, activation="gelu", name="hidden"),
            layers.Dense(4, name="head"),
        ]
    )


def penalised():
    """Adds to its loss by itself."""
    return keras.Sequential(
        [keras.Input((4,)), layers.Dense(4, kernel_regularizer=keras.regularizers.L2(0.25), name="fc")]
    )


def descent(rate=0.1):
    return keras.optimizers.SGD(rate, momentum=0.9)


def descent_of(model, rate=0.1):
    assert isinstance(model, keras.Model)
    return keras.optimizers.SGD(rate)


def falling():
    return keras.optimizers.SGD(keras.optimizers.schedules.PolynomialDecay(0.5, 4, 0.1))


class NoOptimizer:
    """Keras has it that an optimizer is made of more."""


def conv(size):
    return keras.Sequential(
        [keras.Input((size, size, 2)), layers.Conv2D(3, 3, strides=2, padding="same", name="conv")]
    )


def pool():
    return keras.Sequential(
        [keras.Input((6, 6, 2)), layers.AveragePooling2D(3, strides=2, padding="same", name="pool")]
    )
