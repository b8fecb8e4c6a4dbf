"""Titre and viability at the end of a fermentation from irregular probe readings: a neural controlled
differential equation (Kidger et al. 2020), Hermite paths with backward differences, RK4, a step an interval."""

import keras
import numpy as np
import tensorflow as tf
from keras import ops

READINGS, PROBES, HIDDEN = 9, 3, 8
CHANNELS = PROBES + 1
SMOOTH = 0.02


class Dense(keras.layers.Layer):
    def __init__(self, units, gain=1.0, **kwargs):
        super().__init__(**kwargs)
        self.units, self.gain = units, gain

    def build(self, input_shape):
        std = self.gain * input_shape[-1] ** -0.5
        self.matrix = self.add_weight(
            name="matrix",
            shape=(input_shape[-1], self.units),
            initializer=keras.initializers.RandomNormal(stddev=std),
        )
        self.shift = self.add_weight(name="shift", shape=(self.units,), initializer="zeros")

    def call(self, x):
        return ops.dot(x, self.matrix) + self.shift


class Field(keras.layers.Layer):
    """dz = f(z) dX, f(z) a matrix (hidden, channels)."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.wide = Dense(14, name="wide")
        self.flat = Dense(HIDDEN * CHANNELS, gain=0.6, name="flat")

    def build(self, z_shape, slope_shape=None):
        self.wide.build(z_shape)
        self.flat.build((None, 14))

    def call(self, z, slope):
        f = ops.tanh(self.flat(ops.softplus(self.wide(z))))
        f = ops.reshape(f, (-1, HIDDEN, CHANNELS))
        return ops.squeeze(ops.matmul(f, slope[:, :, None]), -1)


class Fermentation(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.start = Dense(HIDDEN, name="start")
        self.field = Field(name="field")
        self.readout = Dense(2, name="readout")

    def solve(self, inputs):
        hours = inputs["hours"]
        path = ops.concatenate([hours[:, :, None], inputs["probes"]], axis=-1)
        width = hours[:, 1:] - hours[:, :-1]
        slopes = (path[:, 1:] - path[:, :-1]) / width[:, :, None]
        z = self.start(path[:, 0])
        effort = 0.0
        for i in range(READINGS - 1):
            now = slopes[:, i]
            past = slopes[:, max(i - 1, 0)]
            middle = 1.25 * now - 0.25 * past
            d = width[:, i, None]
            k1 = self.field(z, past)
            k2 = self.field(z + d / 2 * k1, middle)
            k3 = self.field(z + d / 2 * k2, middle)
            k4 = self.field(z + d * k3, now)
            z = z + d / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            effort = effort + ops.mean(d * ops.square(k2), axis=-1)
        return self.readout(z), effort

    def call(self, inputs):
        return self.solve(inputs)[0]

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            outputs, effort = self.solve(x)
            value = self.compute_loss(x=x, y=y, y_pred=outputs) + SMOOTH * ops.mean(effort)
        variables = self.trainable_variables
        gradients = tape.gradient(value, [v.value for v in variables])
        self.optimizer.apply(gradients, variables)
        return {"loss": value, "effort": ops.mean(effort)}


def build():
    model = Fermentation()
    hours = np.arange(READINGS, dtype=np.float32)[None]
    model({"hours": hours, "probes": np.zeros((1, READINGS, PROBES), np.float32)})
    return model
