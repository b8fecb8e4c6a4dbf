"""A neural Hawkes process: an LSTM whose cell decays between events, and the intensity of each kind of event."""

import keras
from keras import layers, ops

EVENTS, KINDS, WIDTH = 12, 4, 16
FRACTIONS = (0.25, 0.5, 0.75, 1.0)


class ContinuousLSTM(layers.Layer):
    """States at fractions of the gap that follows each event: (B, T, E), (B, T) -> (B, T, Q, H)"""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.gates = layers.Dense(7 * units, name="gates")

    def call(self, x, gaps):
        zeros = ops.zeros((ops.shape(x)[0], self.units), dtype=x.dtype)
        cell, target, hidden = zeros, zeros, zeros
        states = []
        for t in range(x.shape[1]):
            gates = self.gates(ops.concatenate([x[:, t], hidden], axis=-1))
            i, f, o, i_target, f_target, z, d = ops.split(gates, 7, axis=-1)
            z = ops.tanh(z)
            start = ops.sigmoid(f) * cell + ops.sigmoid(i) * z
            target = ops.sigmoid(f_target) * target + ops.sigmoid(i_target) * z
            decay, o = ops.softplus(d), ops.sigmoid(o)
            at = []
            for fraction in FRACTIONS:
                elapsed = fraction * gaps[:, t, None]
                cell = target + (start - target) * ops.exp(-decay * elapsed)
                hidden = o * ops.tanh(cell)
                at.append(hidden)
            states.append(ops.stack(at, axis=1))
        return ops.stack(states, axis=1)


class Intensity(layers.Layer):
    """A softplus with a learned scale for each kind of event."""

    def __init__(self, kinds, **kwargs):
        super().__init__(**kwargs)
        self.project = layers.Dense(kinds, name="project")

    def build(self, input_shape):
        self.project.build(input_shape)
        self.log_scale = self.add_weight(
            shape=(self.project.units,), initializer=keras.initializers.Constant(-0.7), name="log_scale"
        )

    def call(self, states):
        scale = ops.exp(self.log_scale)
        return scale * ops.softplus(self.project(states) / scale)


def build():
    kinds = keras.Input((EVENTS,), dtype="int32", name="kinds")
    gaps = keras.Input((EVENTS,), name="gaps")
    x = layers.Embedding(KINDS + 1, 8, embeddings_initializer="glorot_normal", name="embedding")(kinds)
    states = ContinuousLSTM(WIDTH, name="lstm")(x, gaps)
    return keras.Model([kinds, gaps], Intensity(KINDS, name="intensity")(states))


def loss(y_true, y_pred):
    """y_true: the kind that comes next (0: none, the window ended) and the time until then."""
    kind = ops.cast(y_true[..., 0], "int32")
    gap = ops.cast(y_true[..., 1], y_pred.dtype)
    happened = ops.cast(kind > 0, y_pred.dtype)
    at_event = ops.sum(y_pred[:, :, -1] * ops.one_hot(kind - 1, KINDS, dtype=y_pred.dtype), axis=-1)
    log_intensity = ops.log(at_event + 1.0 - happened)
    expected = gap * ops.mean(ops.sum(y_pred, axis=-1), axis=-1)
    return ops.sum((expected - log_intensity) * happened, axis=1) / ops.sum(happened, axis=1)
