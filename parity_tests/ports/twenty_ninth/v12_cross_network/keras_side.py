# Credit default, tabular. Keras version of the torch network: periodic embeddings for the
# numeric columns, tables for the categorical ones, cross layers next to a small MLP.
import math

import keras
from keras import layers, ops

N_NUM, FREQ, EMB = 5, 4, 3
CARDS = (4, 6)


class Periodic(layers.Layer):
    def build(self, shape):
        self.freq = self.add_weight(
            name="freq", shape=(N_NUM, FREQ), initializer=keras.initializers.RandomNormal(stddev=0.3)
        )
        self.w = self.add_weight(name="w", shape=(N_NUM, 2 * FREQ, EMB), initializer="glorot_uniform")
        self.b = self.add_weight(name="b", shape=(N_NUM, EMB), initializer="zeros")

    def call(self, x):
        angle = 2 * math.pi * self.freq * x[..., None]
        z = ops.concatenate([ops.cos(angle), ops.sin(angle)], axis=-1)
        return ops.relu(ops.einsum("bnf,nfe->bne", z, self.w) + self.b)


class Cross(layers.Layer):
    def build(self, shape):
        d = shape[-1]
        self.w = self.add_weight(name="w", shape=(d, d), initializer="glorot_uniform")
        self.b = self.add_weight(name="b", shape=(d,), initializer="zeros")

    def call(self, x0, x):
        return x0 * ops.matmul(x, self.w) + self.b + x


def build():
    num = keras.Input((N_NUM,), name="num")
    cat = keras.Input((len(CARDS),), dtype="int32", name="cat")
    parts = [layers.Flatten()(Periodic(name="periodic")(num))]
    for i, card in enumerate(CARDS):
        parts.append(layers.Embedding(card, EMB, name=f"cat{i}")(cat[:, i]))
    x0 = layers.Concatenate(name="x0")(parts)

    c = x0
    for i in range(2):
        c = Cross(name=f"cross{i}")(x0, c)

    d = layers.Dense(16, activation="relu", name="mlp1")(x0)
    d = layers.Dense(8, activation="relu", name="mlp2")(d)
    out = layers.Dense(1, name="logit")(layers.Concatenate()([c, d]))
    return keras.Model([num, cat], out)
