"""Models of Keras 2; `ports` has them in torch."""

import tf_keras as keras
from tf_keras import layers


def images():
    return keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dense(5),
        ]
    )


def rows():
    x = keras.Input((6,), name="x")
    h = layers.Dense(8, activation="tanh", name="hidden")(x)
    return keras.Model(x, layers.Dense(3, name="head")(layers.BatchNormalization()(h)))


def mixed():
    x = keras.Input((8, 8, 1))
    h = layers.Flatten()(layers.BatchNormalization()(x))
    return keras.Model(x, layers.BatchNormalization()(h))


class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.head = layers.Dense(3)

    def call(self, x):
        return self.head(x)


class Doubled(layers.Layer):
    def call(self, x):
        return 2 * x


def own_layer():
    return keras.Sequential([layers.Input((6,)), Doubled(), layers.Dense(3)])
