"""ICU mortality from irregular vitals: recurrent net with learned decay of stale values (GRU-D)."""

import keras
from keras import layers, ops

STEPS, VARS = 10, 4


class DecayCell(layers.Layer):
    """Input per step: [value, observed flag, hours since last observation] side by side."""

    def __init__(self, units, **kw):
        super().__init__(**kw)
        self.units = units
        self.state_size = [units, VARS]

    def build(self, shape):
        u = self.units
        w = self.add_weight
        self.wx = w(name="wx", shape=(VARS,), initializer=keras.initializers.Constant(0.3))
        self.bx = w(name="bx", shape=(VARS,), initializer="zeros")
        self.wh = w(name="wh", shape=(VARS, u), initializer="glorot_uniform")
        self.bh = w(name="bh", shape=(u,), initializer="zeros")
        self.kernel = w(name="kernel", shape=(2 * VARS + u, 2 * u), initializer="glorot_uniform")
        self.bias = w(name="bias", shape=(2 * u,), initializer="ones")
        self.cand = w(name="cand", shape=(2 * VARS + u, u), initializer="glorot_uniform")
        self.cand_bias = w(name="cand_bias", shape=(u,), initializer="zeros")

    def call(self, inputs, states):
        h, last = states
        x, m, gap = ops.split(inputs, 3, axis=-1)
        fade = ops.exp(-ops.relu(self.wx * gap + self.bx))
        filled = m * x + (1.0 - m) * fade * last
        last = m * x + (1.0 - m) * last
        h = h * ops.exp(-ops.relu(ops.matmul(gap, self.wh) + self.bh))
        zr = ops.sigmoid(ops.matmul(ops.concatenate([filled, m, h], -1), self.kernel) + self.bias)
        z, r = ops.split(zr, 2, axis=-1)
        c = ops.tanh(ops.matmul(ops.concatenate([filled, m, r * h], -1), self.cand) + self.cand_bias)
        h = (1.0 - z) * h + z * c
        return h, [h, last]


def build():
    value = keras.Input((STEPS, VARS), name="value")
    observed = keras.Input((STEPS, VARS), name="observed")
    gap = keras.Input((STEPS, VARS), name="gap")
    seq = layers.Concatenate(axis=-1)([value, observed, gap])
    h = layers.RNN(DecayCell(7, name="decay"), name="rnn")(seq)
    return keras.Model([value, observed, gap], layers.Dense(1, name="risk")(h))
