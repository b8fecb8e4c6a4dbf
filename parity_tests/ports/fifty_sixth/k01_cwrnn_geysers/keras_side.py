"""Waiting time until a geyser's next eruption, from 30 readings of three probes: a clockwork RNN."""

import keras
import numpy as np

PERIODS = (1, 2, 4, 8)
WIDTH = 6
STEPS = 30


class ClockworkCell(keras.layers.Layer):
    """Modules with clocks of their own; a module hears itself and all slower ones."""

    def __init__(self, periods, width, **kwargs):
        super().__init__(**kwargs)
        self.periods = periods
        self.width = width
        self.units = width * len(periods)
        self.state_size = [self.units, 1]
        self.output_size = self.units
        clock = np.repeat(np.array(periods, dtype=np.float32), width)
        self.clock = clock
        self.wiring = (clock[:, None] >= clock[None, :]).astype(np.float32)

    def build(self, input_shape):
        self.w = self.add_weight(name="w", shape=(input_shape[-1], self.units), initializer="glorot_uniform")
        self.u = self.add_weight(name="u", shape=(self.units, self.units), initializer="orthogonal")
        self.b = self.add_weight(name="b", shape=(self.units,), initializer="zeros")

    def call(self, x, states):
        h, tick = states
        candidate = keras.ops.tanh(
            keras.ops.matmul(x, self.w) + keras.ops.matmul(h, self.u * self.wiring) + self.b
        )
        due = keras.ops.equal(keras.ops.mod(tick, self.clock), 0)
        h = keras.ops.where(due, candidate, h)
        return h, [h, tick + 1]


class Affine(keras.layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, input_shape):
        self.w = self.add_weight(name="w", shape=(input_shape[-1], self.units), initializer="he_normal")
        self.b = self.add_weight(name="b", shape=(self.units,), initializer="zeros")

    def call(self, x):
        return keras.ops.matmul(x, self.w) + self.b


class Centre(keras.layers.Layer):
    """Layer norm with a gain only."""

    def build(self, input_shape):
        self.gain = self.add_weight(name="gain", shape=(input_shape[-1],), initializer="ones")

    def call(self, x):
        x = x - keras.ops.mean(x, axis=-1, keepdims=True)
        return self.gain * x / keras.ops.sqrt(keras.ops.mean(x * x, axis=-1, keepdims=True) + 1e-4)


def build():
    probes = keras.Input((STEPS, 3), name="probes")
    x = Affine(10, name="lift")(probes)
    x = keras.layers.Activation("softplus")(x)
    states = keras.layers.RNN(ClockworkCell(PERIODS, WIDTH), return_sequences=True, name="clockwork")(x)
    last = states[:, -1]
    swing = keras.ops.max(states, axis=1) - keras.ops.min(states, axis=1)
    x = keras.layers.Concatenate()([last, swing])
    x = Centre(name="centre")(x)
    x = keras.ops.silu(Affine(12, name="mix")(x))
    wait = Affine(1, name="wait")(x)
    return keras.Model(probes, wait)


def loss(targets, outputs):
    error = outputs - keras.ops.cast(targets, outputs.dtype)
    return keras.ops.mean(error + keras.ops.softplus(-2.0 * error) - float(np.log(2.0)), axis=-1)
