"""Activities from body sensors by quasi-recurrent layers; recordings differ in length."""

import keras
from keras import layers, ops

STEPS, SENSORS, UNITS, CLASSES = 32, 3, 20, 4


class RunningCentre(layers.Layer):
    """Takes off the running mean of every sensor; a batch is centred by what was known before it."""

    def __init__(self, momentum=0.9, **kwargs):
        super().__init__(**kwargs)
        self.momentum = momentum

    def build(self, input_shape):
        self.mean = self.add_weight(
            shape=(input_shape[-1],), initializer="zeros", trainable=False, aggregation="mean", name="mean"
        )

    def call(self, x, training=False):
        centred = x - self.mean
        if training:
            batch_mean = ops.mean(x, axis=(0, 1))
            self.mean.assign(self.momentum * self.mean + (1.0 - self.momentum) * batch_mean)
        return centred


class QRNN(layers.Layer):
    def __init__(self, units, window=3, **kwargs):
        super().__init__(**kwargs)
        self.gates = layers.Conv1D(3 * units, window, padding="causal", name="gates")

    def call(self, x):
        z, f, o = ops.split(self.gates(x), 3, axis=-1)
        z, f, o = ops.tanh(z), ops.sigmoid(f), ops.sigmoid(o)
        cell = ops.zeros_like(z[:, 0])
        outputs = []
        for t in range(x.shape[1]):
            cell = f[:, t] * cell + (1.0 - f[:, t]) * z[:, t]
            outputs.append(o[:, t] * cell)
        return ops.stack(outputs, axis=1)


class LastValid(layers.Layer):
    def call(self, x, length):
        last = ops.reshape(length - 1, (-1, 1, 1))
        last = ops.broadcast_to(last, (ops.shape(x)[0], 1, x.shape[-1]))
        return ops.take_along_axis(x, last, axis=1)[:, 0]


def build():
    signal = keras.Input((STEPS, SENSORS), name="signal")
    length = keras.Input((), dtype="int32", name="length")
    x = RunningCentre(name="centre")(signal)
    x = QRNN(UNITS, name="qrnn1")(x)
    x = layers.Dropout(0.1)(x)
    x = QRNN(UNITS, name="qrnn2")(x)
    x = LastValid(name="last")(x, length)
    return keras.Model([signal, length], layers.Dense(CLASSES, name="classes")(x))
