"""Recurrent Hawkes process: after each event every kind has an intensity
softplus(mu + a * exp(-b * t)), with a and b from a GRU over the history.
Targets: (time to the next event, its kind 1..K); kind -1 is censored at the horizon, kind 0 is padding."""

import keras
import numpy as np
from keras import layers, ops

KINDS, LENGTH, NODES = 3, 20, 8
_x, _w = np.polynomial.legendre.leggauss(NODES)
QUAD_X = (0.5 * (_x + 1.0)).astype("float32")
QUAD_W = (0.5 * _w).astype("float32")
OMEGA = np.array([2 * np.pi / 24, 4 * np.pi / 24, 2 * np.pi / 6], dtype="float32")


@keras.saving.register_keras_serializable("hawkes")
class ClockFeatures(layers.Layer):
    def call(self, gaps):
        t = ops.cumsum(gaps, axis=1)[..., None] * OMEGA
        return ops.concatenate([ops.log1p(gaps)[..., None], ops.sin(t), ops.cos(t)], axis=-1)


@keras.saving.register_keras_serializable("hawkes")
class BaseRate(layers.Layer):
    """Puts the constant part next to the two that depend on the history."""

    def build(self, shape):
        self.mu = self.add_weight(shape=(KINDS,), initializer=keras.initializers.Constant(-1.0), name="mu")

    def call(self, x):
        jump, decay = ops.split(x, 2, axis=-1)
        return ops.stack(
            [ops.broadcast_to(self.mu, ops.shape(jump)), jump, ops.softplus(decay) + 0.01], axis=-1
        )


def build():
    gaps = keras.Input((LENGTH,), name="gaps")
    marks = keras.Input((LENGTH,), dtype="int32", name="marks")
    present = ops.not_equal(marks, 0)
    x = layers.Concatenate(name="event")(
        [layers.Embedding(KINDS + 1, 8, name="kind")(marks), ClockFeatures(name="clock")(gaps)]
    )
    x = layers.Dense(24, activation="tanh", name="mix")(x)
    x = layers.GRU(24, return_sequences=True, zero_output_for_mask=True, name="history_1")(x, mask=present)
    x = layers.GRU(16, return_sequences=True, zero_output_for_mask=True, name="history_2")(x, mask=present)
    x = layers.LayerNormalization(name="norm")(x)
    x = layers.Dense(20, activation="silu", name="hidden")(x)
    x = layers.Dense(2 * KINDS, name="jump_decay")(x)
    return keras.Model({"gaps": gaps, "marks": marks}, BaseRate(name="rates")(x), name="hawkes")


def intensity(params, t):
    mu, jump, decay = params[..., 0], params[..., 1], params[..., 2]
    return ops.softplus(mu + jump * ops.exp(-decay * t))


def tpp_nll(target, params):
    gap = ops.cast(target[..., 0], params.dtype)
    kind = ops.cast(target[..., 1], "int32")
    hit = ops.cast(kind[..., None] == np.arange(1, KINDS + 1, dtype="int32"), params.dtype)
    log_rate = ops.sum(hit * ops.log(intensity(params, gap[..., None]) + 1e-6), axis=-1)
    compensator = 0.0
    for x, w in zip(QUAD_X, QUAD_W):
        compensator = compensator + w * ops.sum(intensity(params, (x * gap)[..., None]), axis=-1)
    real = ops.cast(kind != 0, params.dtype)
    return ops.sum(real * (gap * compensator - log_rate), axis=1) / ops.sum(real, axis=1)
