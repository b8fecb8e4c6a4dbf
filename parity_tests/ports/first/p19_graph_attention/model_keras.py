"""Graph attention (GAT) over a fixed ring of sensors with a few chords; a class for each node."""

import keras
import numpy as np
from keras import layers, ops

NODES = 12


def adjacency():
    a = np.eye(NODES)
    for i in range(NODES):
        a[i, (i + 1) % NODES] = a[(i + 1) % NODES, i] = 1
    for i, j in ((0, 5), (2, 9), (4, 11)):
        a[i, j] = a[j, i] = 1
    return a


class GraphAttention(layers.Layer):
    def __init__(self, units, **kw):
        super().__init__(**kw)
        self.transform = layers.Dense(units, use_bias=False, name="transform")
        self.receiver = layers.Dense(1, use_bias=False, name="receiver")
        self.sender = layers.Dense(1, use_bias=False, name="sender")
        self.slope = layers.LeakyReLU(name="slope")
        self.blocked = (1.0 - adjacency()) * -1e9

    def build(self, shape):
        self.transform.build(shape)
        hidden = (*shape[:-1], self.transform.units)
        self.receiver.build(hidden)
        self.sender.build(hidden)
        self.bias = self.add_weight(shape=(self.transform.units,), initializer="zeros", name="bias")

    def call(self, x):
        h = self.transform(x)
        scores = self.slope(
            self.receiver(h) + ops.transpose(self.sender(h), (0, 2, 1))
        )  # (batch, receiver, sender)
        weights = ops.softmax(scores + ops.cast(self.blocked, h.dtype), axis=-1)
        return ops.matmul(weights, h) + self.bias


def build():
    nodes = keras.Input((NODES, 6), name="nodes")
    x = layers.Activation("elu", name="elu1")(GraphAttention(16, name="gat1")(nodes))
    x = layers.Activation("elu", name="elu2")(GraphAttention(16, name="gat2")(x))
    return keras.Model(nodes, layers.Dense(4, name="classes")(x), name="gat")
