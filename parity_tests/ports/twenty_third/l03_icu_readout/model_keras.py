"""Deterioration risk from hourly vitals of stays of different lengths.

A GRU runs over the stay; the risk is read from an attention average over the
observed hours together with the state at the end of the stay.
"""

import keras
from keras import layers, ops

MAX_HOURS, N_VITALS = 20, 6


class HourMask(layers.Layer):
    """lengths (N,) -> boolean mask (N, hours), true for observed hours."""

    def __init__(self, hours, **kwargs):
        super().__init__(**kwargs)
        self.hours = hours

    def call(self, lengths):
        hours = ops.arange(self.hours, dtype="int32")
        return hours[None, :] < ops.cast(lengths, "int32")[:, None]


class AttentionReadout(layers.Layer):
    """Additive attention with a learned query over the observed hours."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.hidden = layers.Dense(units, activation="tanh", name="hidden")
        self.score = layers.Dense(1, use_bias=False, name="score")

    def build(self, input_shape):
        self.hidden.build(input_shape)
        self.score.build(tuple(input_shape[:-1]) + (self.hidden.units,))
        super().build(input_shape)

    def call(self, states, observed):
        score = ops.squeeze(self.score(self.hidden(states)), -1)
        score = ops.where(observed, score, -1e9)
        weight = ops.softmax(score, axis=-1)
        return ops.sum(weight[..., None] * states, axis=1)


class LastState(layers.Layer):
    def call(self, states):
        return states[:, -1]


def build():
    vitals = keras.Input((MAX_HOURS, N_VITALS), name="vitals")
    lengths = keras.Input((), dtype="int32", name="lengths")
    observed = HourMask(MAX_HOURS, name="observed")(lengths)

    x = layers.Dense(12, activation="tanh", name="embed")(vitals)
    # hours that are masked out repeat the state of the last observed hour
    states = layers.GRU(14, return_sequences=True, name="gru")(x, mask=observed)
    context = AttentionReadout(8, name="readout")(states, observed)
    last = LastState(name="last")(states)

    x = layers.Concatenate(name="joined")([context, last])
    x = layers.Dense(10, activation="elu", name="hidden")(x)
    risk = layers.Dense(1, name="risk")(x)
    return keras.Model([vitals, lengths], risk, name="icu_risk")
