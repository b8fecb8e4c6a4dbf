"""Keras models for the tests of `parity lint`."""

import keras
from keras import layers


def stock():
    """A convolutional net with every argument left to Keras's defaults that can be."""
    return keras.Sequential(
        [
            keras.Input((12, 12, 3)),
            layers.Conv2D(8, 3, name="conv"),
            layers.BatchNormalization(name="norm"),
            layers.ReLU(name="relu"),
            layers.MaxPooling2D(2, name="pool"),
            layers.Conv2D(16, 3, name="conv2"),
            layers.LeakyReLU(name="leaky"),
            layers.Dropout(0.5, name="drop"),
            layers.Flatten(name="flat"),
            layers.Dense(10, name="head"),
        ]
    )


def stock_adam():
    """Keras's Adam as it comes."""
    return keras.optimizers.Adam()


def made_equal():
    """As `stock`, with those of PyTorch's defaults that Keras can take."""
    return keras.Sequential(
        [
            keras.Input((12, 12, 3)),
            layers.Conv2D(8, 3, name="conv"),
            layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name="norm"),
            layers.ReLU(name="relu"),
            layers.MaxPooling2D(2, name="pool"),
            layers.Conv2D(16, 3, name="conv2"),
            layers.LeakyReLU(negative_slope=0.01, name="leaky"),
            layers.Dropout(0.5, name="drop"),
            layers.Flatten(name="flat"),
            layers.Dense(10, name="head"),
        ]
    )


def chain(parts, shape, dtype="float32"):
    """Layers one after another, each [class, arguments]."""
    made = [getattr(layers, name)(**arguments) for name, arguments in parts]
    return keras.Sequential([keras.Input(shape, dtype=dtype), *made])


def attention(**arguments):
    """Self-attention."""
    tokens = keras.Input((6, 8))
    return keras.Model(tokens, layers.MultiHeadAttention(**arguments)(tokens, tokens))


def both_ways(**arguments):
    """An LSTM that reads in both directions."""
    inner = layers.LSTM(6, return_sequences=True)
    return keras.Sequential([keras.Input((6, 8)), layers.Bidirectional(inner, **arguments)])


class Scaled(layers.Layer):
    """A layer that no one but its author knows."""

    def build(self, input_shape):
        self.factor = self.add_weight(shape=(input_shape[-1],), initializer="ones", name="factor")

    def call(self, inputs):
        return inputs * self.factor


class Clipped(layers.Dense):
    """A dense layer that computes something else."""

    def call(self, inputs):
        return keras.ops.clip(super().call(inputs), -1, 1)


class Odd(keras.Model):
    """Everything that an outline has to see: sharing, functions, nesting, freezing, what is unused."""

    def __init__(self):
        super().__init__(name="odd")
        self.first = layers.Dense(8, name="first", activation="relu")
        self.twice = layers.Dense(8, name="twice")
        self.inner = keras.Sequential([layers.Dense(8, name="deep"), layers.ReLU(name="act")], name="inner")
        self.scaled = Scaled(name="scaled")
        self.clipped = Clipped(4, name="clipped")
        self.never = layers.Dense(3, name="never")
        self.never.build((None, 8))
        self.frozen = layers.Dense(8, name="frozen", trainable=False)
        self.drop = layers.Dropout(0.25, name="drop")

    def call(self, inputs):
        x = keras.ops.tanh(self.first(inputs))
        x = keras.activations.silu(self.twice(self.twice(x)))
        x = self.frozen(self.drop(self.inner(x)))
        return {"main": self.clipped(self.scaled(x)), "side": x}
