"""Readmission from the codes of past visits (rows of zeros: no visit): RETAIN, two GRUs that run back in time."""

import keras
from keras import layers, ops


class MaskedSoftmax(layers.Layer):
    def call(self, e, present):
        e = e + (1.0 - present) * -1e9
        return ops.softmax(e, axis=1)


class Retain(keras.Model):
    def __init__(self, emb=8, alpha=6, beta=6):
        super().__init__()
        self.embed = layers.Dense(emb, use_bias=False, name="embed")
        self.gru_a = layers.GRU(alpha, return_sequences=True, go_backwards=True, name="gru_a")
        self.gru_b = layers.GRU(beta, return_sequences=True, go_backwards=True, name="gru_b")
        self.alpha = layers.Dense(1, name="alpha")
        self.beta = layers.Dense(emb, activation="tanh", name="beta")
        self.attend = MaskedSoftmax()
        self.out = layers.Dense(1, name="out")

    def call(self, x):
        present = ops.any(x != 0, axis=-1)
        v = self.embed(x)
        g = ops.flip(self.gru_a(v, mask=present), axis=1)
        h = ops.flip(self.gru_b(v, mask=present), axis=1)
        a = self.attend(self.alpha(g), ops.cast(present, v.dtype)[..., None])
        context = ops.sum(a * self.beta(h) * v, axis=1)
        return self.out(context)


def build():
    model = Retain()
    model(ops.zeros((1, 10, 14)))
    return model


def optimizer():
    return keras.optimizers.SGD(learning_rate=0.5, global_clipnorm=0.25)
