"""A Keras model and optimizers for the tests of `parity export`: all settings are exact in float32."""

import keras
from keras import layers, optimizers


def build():
    """Convolution, batch norm, a dense layer after a flatten, and one that is frozen."""
    return keras.Sequential(
        [
            keras.Input((5, 4, 3)),
            layers.Conv2D(4, 3, padding="same", activation="tanh", name="conv"),
            layers.BatchNormalization(epsilon=2**-10, name="norm"),
            layers.Flatten(name="flat"),
            layers.Dense(6, activation="tanh", name="hidden"),
            layers.Dense(6, activation="tanh", name="frozen", trainable=False),
            layers.Dense(2, name="head"),
        ],
        name="user_model",
    )


def compiled():
    """The same with an optimizer of its own."""
    model = build()
    model.compile(optimizer=adam(), loss="mse")
    return model


def wider():
    """Another one."""
    return keras.Sequential([keras.Input((3,)), layers.Dense(2, name="head")])


def adam(**settings):
    return optimizers.Adam(2**-7, 0.875, 1 - 2**-6, 1e-30, **settings)


def adamw():
    return optimizers.AdamW(2**-7, 2**-5, 0.875, 1 - 2**-6, 1e-30)


def amsgrad():
    return adam(amsgrad=True)


def sgd():
    return optimizers.SGD(2**-5, 0.875)


def nesterov():
    return optimizers.SGD(2**-5, 0.875, nesterov=True)


def plain():
    return optimizers.SGD(2**-5)


def rmsprop():
    return optimizers.RMSprop(2**-9, 0.875, 0.5, 1e-30, centered=True)


def adagrad():
    return optimizers.Adagrad(2**-5, 2**-3, 1e-30)


def adadelta():
    return optimizers.Adadelta(0.5, 0.875, 2**-10)


def adamax():
    return optimizers.Adamax(2**-7, 0.875, 1 - 2**-6, 1e-30)


def averaged():
    return adam(use_ema=True)


def nadam():
    return optimizers.Nadam(2**-7)


class Called(keras.Model):
    """It has no weights before it is called."""

    def __init__(self):
        super().__init__()
        self.hidden, self.head = (
            layers.Dense(6, activation="tanh", name="hidden"),
            layers.Dense(2, name="head"),
        )

    def call(self, x):
        return self.head(self.hidden(x))
