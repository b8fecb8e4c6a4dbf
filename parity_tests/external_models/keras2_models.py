"""Models of Keras 2; `ports` has them in torch."""

import tensorflow as tf
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


class Encoder(layers.Layer):
    """Weights of its own, and a penalty of what it gives."""

    def build(self, shape):
        self.scale = self.add_weight(name="scale", shape=(shape[-1],), initializer="uniform")
        self.dense = layers.Dense(shape[-1], activation="gelu")

    def call(self, x):
        self.add_loss(0.1 * tf.reduce_mean(x**2))
        return x + self.scale * self.dense(x)


class Reader(keras.Model):
    """Words of several lengths, as code before Keras 3 has them: layers in a list, a mask, a mode."""

    def __init__(self):
        super().__init__()
        self.table = layers.Embedding(12, 6, mask_zero=True)
        self.memory = layers.GRU(5, return_sequences=True)
        self.encoders = [Encoder() for _ in range(2)]
        self.norm = layers.BatchNormalization()
        self.drop = layers.Dropout(0.5)
        self.head = layers.Dense(3)

    def call(self, x, training=False):
        h = self.memory(self.table(x))
        for encoder in self.encoders:
            h = encoder(h)
        h = self.norm(h, training=training)
        return self.head(self.drop(h[:, -1], training=training))


made_at_import = Own()


class Penalised(layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(
            name="kernel", shape=(shape[-1], 3), regularizer=keras.regularizers.L2(0.1)
        )

    def call(self, x):
        return x @ self.kernel


def penalised():
    return keras.Sequential([layers.Input((6,)), Penalised()])
