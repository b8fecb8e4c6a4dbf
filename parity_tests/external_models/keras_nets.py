"""Keras models that are trained as imported ones; their ports are in torch_nets.py."""

import keras
import numpy as np
from keras import layers, ops


class Ramp(layers.Layer):
    """Each unit times a number of a table."""

    def call(self, x):
        return x * np.linspace(0.1, 1, x.shape[-1])


def mlp(units=8):
    """Dense layers on rows of six numbers."""
    return keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(units, activation="tanh", name="first"),
            layers.Dense(units, activation="tanh", name="second"),
            Ramp(name="ramp"),
            layers.Dense(3, name="last"),
        ],
        name="net",
    )


def cnn(epsilon=1e-5):
    """A convolution with batch norm on small images."""
    image = keras.Input((6, 6, 2))
    x = layers.Conv2D(4, 3, padding="same", use_bias=False, name="conv")(image)
    x = layers.BatchNormalization(momentum=0.9, epsilon=epsilon, name="norm")(x)
    x = layers.Activation("tanh", name="act")(x)
    x = layers.AveragePooling2D(2, name="pool")(x)
    return keras.Model(image, layers.Dense(3, name="head")(layers.Flatten()(x)))


def masks():
    """An image for an image."""
    image = keras.Input((4, 4, 2))
    x = layers.Conv2D(4, 3, padding="same", activation="tanh", name="conv")(image)
    return keras.Model(image, layers.Conv2D(3, 1, name="classes")(x))


class Text(keras.Model):
    """Embedding, LSTM and attention; built when it is first called."""

    def __init__(self):
        super().__init__()
        self.embed = layers.Embedding(12, 8, name="embed")
        self.lstm = layers.LSTM(8, return_sequences=True, name="lstm")
        self.attend = layers.MultiHeadAttention(2, 4, name="attend")
        self.head = layers.Dense(3, name="head")

    def call(self, tokens):
        x = self.lstm(self.embed(tokens))
        x = x + self.attend(x, x)
        return self.head(ops.mean(x, axis=1))


class Unused(keras.Model):
    """One of its layers is never called in a way that reaches the output."""

    def __init__(self):
        super().__init__()
        self.first, self.spare = layers.Dense(5, name="first"), layers.Dense(4, name="spare")
        self.last = layers.Dense(3, name="last")

    def call(self, x):
        hidden = ops.tanh(self.first(x))
        self.spare(hidden)
        return self.last(hidden)


def dropped(rate=0.5):
    """It draws random numbers in training, unless it is told not to."""
    return keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(8, activation="tanh", name="first"),
            layers.Dropout(rate, name="drop"),
            layers.Reshape((2, 4)),
            layers.LSTM(4, dropout=rate, recurrent_dropout=rate, name="lstm"),
            layers.Dense(3, name="last"),
        ]
    )


def penalised():
    """It adds to the loss by itself."""
    return keras.Sequential([keras.Input((6,)), layers.Dense(3, kernel_regularizer="l2", name="last")])


def two_inputs():
    """More than a batch of inputs goes into it."""
    left, right = keras.Input((6,), name="left"), keras.Input((4,), name="right")
    return keras.Model([left, right], layers.Dense(3, name="last")(layers.Concatenate()([left, right])))


def two_outputs():
    """More than one output comes of it."""
    x = keras.Input((6,))
    return keras.Model(x, [layers.Dense(3, name="last")(x), layers.Dense(2, name="more")(x)])


def fails():
    """It cannot be built."""
    raise RuntimeError("no such weights")
