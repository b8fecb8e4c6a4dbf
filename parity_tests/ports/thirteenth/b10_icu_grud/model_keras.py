"""GRU-D for intensive care: values with gaps, what was observed, and the time since each was seen last."""

import keras
from keras import layers, ops

MEANS = (0.75, -0.5, 1.5, 0.25)


class GRUD(layers.Layer):
    def __init__(self, units, means=MEANS, **kwargs):
        super().__init__(**kwargs)
        self.units, self.means = units, means

    def build(self, values_shape, observed_shape, delta_shape):
        features, units = values_shape[-1], self.units

        def add(name, *shape, initializer="glorot_uniform"):
            return self.add_weight(shape=shape, initializer=initializer, name=name)

        self.input_decay = add("input_decay", features, initializer="ones")
        self.input_decay_bias = add("input_decay_bias", features, initializer="zeros")
        self.hidden_decay = add("hidden_decay", features, units)
        self.hidden_decay_bias = add("hidden_decay_bias", units, initializer="zeros")
        self.kernel = add("kernel", features, 3 * units)
        self.recurrent = add("recurrent", units, 3 * units, initializer="orthogonal")
        self.mask_kernel = add("mask_kernel", features, 3 * units)
        self.bias = add("bias", 3 * units, initializer="zeros")

    def call(self, values, observed, delta):
        units, dtype = self.units, values.dtype
        mean = ops.cast(ops.array(self.means), dtype)
        last = ops.zeros_like(values[:, 0]) + mean
        h = ops.zeros_like(values[:, 0, :1]) + ops.zeros((units,), dtype=dtype)
        fade_x = ops.exp(-ops.relu(delta * self.input_decay + self.input_decay_bias))
        fade_h = ops.exp(-ops.relu(ops.matmul(delta, self.hidden_decay) + self.hidden_decay_bias))
        for t in range(values.shape[1]):
            m = observed[:, t]
            guess = fade_x[:, t] * last + (1 - fade_x[:, t]) * mean
            x = m * values[:, t] + (1 - m) * guess
            last = m * values[:, t] + (1 - m) * last
            h = fade_h[:, t] * h
            given = ops.matmul(x, self.kernel) + ops.matmul(m, self.mask_kernel) + self.bias
            gates = ops.matmul(h, self.recurrent[:, : 2 * units]) + given[:, : 2 * units]
            z, r = ops.split(ops.sigmoid(gates), 2, axis=-1)
            candidate = ops.tanh(given[:, 2 * units :] + ops.matmul(r * h, self.recurrent[:, 2 * units :]))
            h = (1 - z) * h + z * candidate
        return h

    def compute_output_shape(self, values_shape, observed_shape, delta_shape):
        return (values_shape[0], self.units)


def build(steps=7, features=4, units=9):
    values = keras.Input((steps, features), name="values")
    observed = keras.Input((steps, features), name="observed")
    delta = keras.Input((steps, features), name="delta")
    age = keras.Input((1,), name="age")
    h = GRUD(units, name="grud")(values, observed, delta)
    x = layers.Dense(8, activation="relu", name="shared")(layers.Concatenate()([h, age]))
    outputs = {
        "death": layers.Dense(1, name="death")(x),
        "days": layers.Dense(1, activation="softplus", name="days")(x),
    }
    return keras.Model([values, observed, delta, age], outputs)


def death_loss(y_true, y_pred):
    """Deaths count three times."""
    value = ops.maximum(y_pred, 0) - y_pred * y_true + ops.log1p(ops.exp(-ops.abs(y_pred)))
    return ops.mean(value * (1 + 2 * y_true), axis=-1)


def days_loss(y_true, y_pred):
    """Squared logarithmic error, one side (too short a stay) twice."""
    error = ops.log1p(y_true) - ops.log1p(y_pred)
    return 0.5 * ops.mean(ops.where(error > 0, 2.0, 1.0) * ops.square(error), axis=-1)
