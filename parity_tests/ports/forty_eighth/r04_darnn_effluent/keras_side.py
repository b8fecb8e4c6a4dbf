"""Dual-stage attention network: ammonium in the effluent of a treatment plant from its sensors."""

import keras
from keras import layers, ops

STEPS = 12
DRIVERS = 6
UNITS = 16


class InputAttention(layers.Layer):
    """Weighs the driving series anew at each step, and runs a GRU over the weighted ones."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.from_state = layers.Dense(STEPS, use_bias=False, name="from_state")
        self.from_series = layers.Dense(STEPS, name="from_series")
        self.score = layers.Dense(1, use_bias=False, name="score")
        self.cell = layers.GRUCell(units, name="cell")

    def build(self, shape):
        self.from_state.build((None, self.units))
        self.from_series.build((None, DRIVERS, STEPS))
        self.score.build((None, DRIVERS, STEPS))
        self.cell.build((None, DRIVERS))
        super().build(shape)

    def call(self, drivers):
        series = self.from_series(ops.transpose(drivers, (0, 2, 1)))
        state = ops.zeros_like(drivers[:, 0, :1]) * ops.ones((1, self.units), dtype=drivers.dtype)
        states = []
        for t in range(STEPS):
            energy = self.score(ops.tanh(self.from_state(state)[:, None] + series))
            alpha = ops.softmax(energy[..., 0], axis=-1)
            state, _ = self.cell(alpha * drivers[:, t], state)
            states.append(state)
        return ops.stack(states, axis=1)


class TemporalAttention(layers.Layer):
    """Decoder over the history of the target, with a look at all encoder states."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.from_state = layers.Dense(UNITS, use_bias=False, name="from_state")
        self.from_memory = layers.Dense(UNITS, name="from_memory")
        self.score = layers.Dense(1, use_bias=False, name="score")
        self.merge = layers.Dense(1, name="merge")
        self.cell = layers.GRUCell(units, name="cell")

    def build(self, shapes):
        self.from_state.build((None, self.units))
        self.from_memory.build((None, STEPS, UNITS))
        self.score.build((None, STEPS, UNITS))
        self.merge.build((None, UNITS + 1))
        self.cell.build((None, 1))
        super().build(shapes)

    def call(self, inputs):
        memory, history = inputs
        keys = self.from_memory(memory)
        state = ops.zeros_like(memory[:, 0])
        for t in range(STEPS):
            energy = self.score(ops.tanh(self.from_state(state)[:, None] + keys))
            beta = ops.softmax(energy, axis=1)
            context = ops.sum(beta * memory, axis=1)
            fed = self.merge(ops.concatenate([history[:, t, None], context], axis=-1))
            state, _ = self.cell(fed, state)
        return ops.concatenate([state, context], axis=-1)


def build():
    drivers = keras.Input((STEPS, DRIVERS), name="drivers")
    history = keras.Input((STEPS,), name="history")
    memory = InputAttention(UNITS, name="encoder")(drivers)
    summary = TemporalAttention(UNITS, name="decoder")([memory, history])
    x = layers.Dense(UNITS, name="mix")(summary)
    y = layers.Dense(1, name="forecast")(x)
    return keras.Model([drivers, history], y, name="darnn")


def optimizer():
    rate = keras.optimizers.schedules.ExponentialDecay(0.0625, decay_steps=20, decay_rate=0.5, staircase=True)
    return keras.optimizers.SGD(rate)
