"""Discrete-time survival: hazard of each of 12 half-years (Gensheimer & Narasimhan's loss)."""

import keras
import numpy as np
from keras import layers, ops

BINS = 12
CENTER = np.array([62, 27, 135, 5.2, 0, 0.3, 0.5, 0.2, 13.5], dtype="float32")
SPREAD = np.array([11, 4, 18, 1, 1, 0.46, 0.5, 0.4, 1.4], dtype="float32")


def censored_nll(y_true, logits):
    t = ops.cast(y_true[:, 0], "int32")
    event = ops.cast(y_true[:, 1:2], logits.dtype)
    at_t = ops.one_hot(t, BINS, dtype=logits.dtype)
    before = ops.flip(ops.cumsum(ops.flip(at_t, axis=1), axis=1), axis=1) - at_t
    survived = before + (1.0 - event) * at_t
    log_h = -ops.softplus(-logits)
    log_s = -ops.softplus(logits)
    return -ops.sum(event * at_t * log_h + survived * log_s, axis=1)


class Gate(layers.Layer):
    """Squeeze to a few units and back; a gate of one leaves a feature as it is."""

    def __init__(self, squeeze=4, **kw):
        super().__init__(**kw)
        self.squeeze = squeeze

    def build(self, shape):
        d = shape[-1]
        self.down = self.add_weight(shape=(d, self.squeeze), initializer="glorot_uniform", name="down")
        self.up = self.add_weight(shape=(self.squeeze, d), initializer="glorot_uniform", name="up")
        self.shift = self.add_weight(shape=(d,), initializer="zeros", name="shift")

    def call(self, x):
        g = ops.matmul(ops.relu(ops.matmul(x, self.down)), self.up) + self.shift
        return 2.0 * ops.sigmoid(g) * x


class GRN(layers.Layer):
    """Pre-norm residual block."""

    def __init__(self, hidden, **kw):
        super().__init__(**kw)
        self.norm = layers.LayerNormalization()
        self.fc1 = layers.Dense(hidden)
        self.fc2 = layers.Dense(24)
        self.gate = Gate()

    def call(self, x):
        return x + self.gate(self.fc2(keras.activations.gelu(self.fc1(self.norm(x)), approximate=False)))


class Survival(keras.Model):
    def __init__(self):
        super().__init__()
        self.feature_gate = Gate(name="feature_gate")
        self.embed = layers.Dense(24, activation="gelu", name="embed")
        self.trunk = keras.Sequential(
            [GRN(32, name="grn_a"), GRN(16, name="grn_b"), layers.LayerNormalization(name="final_norm")]
        )
        self.shared = layers.Dense(1, name="risk")
        self.per_bin = layers.Dense(BINS, use_bias=False, name="per_bin")

    def build(self, shape):
        self.baseline = self.add_weight(
            shape=(BINS,), initializer=keras.initializers.Constant(-2.0), name="baseline"
        )
        super().build(shape)

    def call(self, x):
        x = ops.concatenate([x[:, :4], ops.log(x[:, 4:5]) - 1.0, x[:, 5:]], axis=1)
        x = (x - ops.cast(CENTER, x.dtype)) / ops.cast(SPREAD, x.dtype)
        h = self.trunk(self.embed(self.feature_gate(x)))
        return self.baseline + self.shared(h) + 0.5 * self.per_bin(h)


def build():
    m = Survival()
    m.build((None, 9))
    m(np.ones((2, 9), "float32"))
    return m
