import keras
import numpy as np
from keras import layers, ops


def cosine(a, b):
    a = a / ops.sqrt(ops.sum(ops.square(a), -1, keepdims=True) + 1e-8)
    b = b / ops.sqrt(ops.sum(ops.square(b), -1, keepdims=True) + 1e-8)
    return ops.mean(ops.sum(a * b, -1))


class SimSiam(keras.Model):
    """Two views of a row side by side in x: (batch, 2, features)."""

    def __init__(self, classes=3, width=16, out=8):
        super().__init__()
        self.encoder = keras.Sequential(
            [
                layers.Dense(width),
                layers.LayerNormalization(epsilon=1e-5),
                layers.Activation("relu"),
                layers.Dense(out),
            ]
        )
        self.predictor = keras.Sequential([layers.Dense(5, activation="relu"), layers.Dense(out)])
        self.probe = layers.Dense(classes)

    def call(self, x, training=None):
        z = self.encoder(x)
        return {"z": z, "p": self.predictor(z), "logits": self.probe(ops.stop_gradient(z[:, 0]))}

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        z, p = y_pred["z"], y_pred["p"]
        fixed = ops.stop_gradient(z)
        sim = 0.5 * cosine(p[:, 0], fixed[:, 1]) + 0.5 * cosine(p[:, 1], fixed[:, 0])
        ce = keras.losses.sparse_categorical_crossentropy(y, y_pred["logits"], from_logits=True)
        return ops.mean(ce) - sim


def build():
    m = SimSiam()
    m(np.zeros((2, 2, 10), "float32"))
    return m
