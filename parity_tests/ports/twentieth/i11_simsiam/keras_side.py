"""SimSiam of two views: the output is the cosine of either prediction with the other, fixed, projection."""

import keras
from keras import layers, ops


class SimSiam(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential(
            [layers.Dense(32, activation="relu"), layers.LayerNormalization(epsilon=1e-5), layers.Dense(16)]
        )
        self.predictor = keras.Sequential([layers.Dense(8, activation="relu"), layers.Dense(16)])

    def call(self, inputs):
        z_left, z_right = self.encoder(inputs["left"]), self.encoder(inputs["right"])
        p_left, p_right = self.predictor(z_left), self.predictor(z_right)
        return ops.stack(
            [cosine(p_left, ops.stop_gradient(z_right)), cosine(p_right, ops.stop_gradient(z_left))], axis=-1
        )


def cosine(a, b):
    a = a / ops.sqrt(ops.sum(ops.square(a), -1, keepdims=True))
    b = b / ops.sqrt(ops.sum(ops.square(b), -1, keepdims=True))
    return ops.sum(a * b, axis=-1)


def build():
    return SimSiam()


def loss(y_true, y_pred):
    return -ops.mean(y_pred, axis=-1)
