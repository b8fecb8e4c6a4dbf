import keras
import numpy as np
import tensorflow as tf

SENSORS, HORIZON = 8, 3
ROADS = [
    (0, 1, 0.9),
    (1, 2, 0.7),
    (2, 3, 1.2),
    (3, 0, 0.4),
    (2, 5, 0.6),
    (4, 1, 0.8),
    (5, 6, 1.1),
    (6, 7, 0.5),
    (7, 4, 0.9),
    (6, 2, 0.3),
    (1, 7, 0.6),
]


def transition():
    adj = 0.5 * np.eye(SENSORS, dtype="float32")
    for i, j, w in ROADS:
        adj[i, j] = w
    return adj / adj.sum(axis=1, keepdims=True)


class GraphGRUCell(keras.layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.walk = transition()
        self.gates = keras.layers.Dense(2 * units, activation="sigmoid")
        self.cand = keras.layers.Dense(units, activation="tanh")

    def hops(self, x):
        walk = tf.cast(self.walk, x.dtype)
        one = tf.einsum("ij,bjf->bif", walk, x)
        two = tf.einsum("ij,bjf->bif", walk, one)
        return tf.concat([x, one, two], axis=-1)

    def call(self, x, h):
        z, r = tf.split(self.gates(self.hops(tf.concat([x, h], -1))), 2, axis=-1)
        c = self.cand(self.hops(tf.concat([x, r * h], -1)))
        return z * h + (1.0 - z) * c


class TrafficModel(keras.Model):
    def __init__(self, units=12):
        super().__init__()
        self.units = units
        self.encoder = GraphGRUCell(units)
        self.decoder = GraphGRUCell(units)
        self.readout = keras.layers.Dense(1)

    def call(self, speed):
        h = tf.zeros((tf.shape(speed)[0], SENSORS, self.units), speed.dtype)
        for t in range(speed.shape[1]):
            h = self.encoder(speed[:, t, :, None], h)
        step, out = speed[:, -1, :, None], []
        for _ in range(HORIZON):
            h = self.decoder(step, h)
            step = step + self.readout(h)
            out.append(step[..., 0])
        return tf.stack(out, axis=1)


def build():
    model = TrafficModel()
    model(tf.zeros((1, 8, SENSORS), keras.config.floatx()))
    return model
