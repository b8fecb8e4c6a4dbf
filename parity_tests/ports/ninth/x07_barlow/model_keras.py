import keras
import tensorflow as tf
from keras import layers, ops


class Twins(keras.Model):
    def __init__(self, width=16, features=10, strength=0.01):
        super().__init__()
        self.strength = strength
        self.encoder = keras.Sequential(
            [
                layers.Dense(width, use_bias=False),
                layers.BatchNormalization(momentum=0.9),
                layers.LeakyReLU(negative_slope=0.25),
                layers.Dense(width, activation="relu"),
            ]
        )
        self.projector = keras.Sequential(
            [
                layers.Dense(features),
                layers.BatchNormalization(momentum=0.9, epsilon=1e-5),
                layers.Dense(features),
            ]
        )

    def call(self, inputs, training=None):
        first = self.projector(self.encoder(inputs["first"], training=training), training=training)
        second = self.projector(self.encoder(inputs["second"], training=training), training=training)
        return first, second

    def objective(self, a, b):
        n = ops.cast(ops.shape(a)[0], a.dtype)
        a = (a - ops.mean(a, axis=0)) / ops.std(a, axis=0)
        b = (b - ops.mean(b, axis=0)) / ops.std(b, axis=0)
        c = ops.matmul(ops.transpose(a), b) / n
        eye = ops.eye(c.shape[0], dtype=c.dtype)
        on = ops.sum(ops.square(c - 1) * eye)
        off = ops.sum(ops.square(c) * (1 - eye))
        return on + self.strength * off

    def train_step(self, data):
        inputs = data[0] if isinstance(data, tuple) else data
        with tf.GradientTape() as tape:
            loss = self.objective(*self(inputs, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


def build():
    model = Twins()
    model({"first": ops.zeros((2, 12)), "second": ops.zeros((2, 12))})
    return model
