"""Gestures from an event camera: two layers of spiking neurons and a leaky readout."""

import keras
import tensorflow as tf
from keras import layers, ops


@tf.custom_gradient
def spike(v):
    def grad(upstream):
        return upstream / tf.square(1.0 + 5.0 * tf.abs(v))

    return tf.cast(v > 0.0, v.dtype), grad


class LIF(layers.Layer):
    """Leaky integrate-and-fire neurons with recurrent synapses; a spike takes one threshold off the membrane."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.synapse = layers.Dense(units, name="synapse")
        self.recurrent = layers.Dense(
            units,
            use_bias=False,
            kernel_initializer=keras.initializers.RandomNormal(stddev=0.1),
            name="recurrent",
        )

    def build(self, shape):
        self.synapse.build(shape)
        self.recurrent.build((shape[0], self.units))
        self.leak = self.add_weight(
            shape=(self.units,), initializer=keras.initializers.Constant(2.0), name="leak"
        )

    def compute_output_shape(self, shape):
        return (*shape[:-1], self.units)

    def call(self, x):
        decay = ops.sigmoid(self.leak)
        current = self.synapse(x)
        v = s = ops.zeros_like(current[:, 0])
        spikes = []
        for t in range(x.shape[1]):
            v = decay * v + current[:, t] + self.recurrent(s) - ops.stop_gradient(s)
            s = spike(v - 1.0)
            spikes.append(s)
        return ops.stack(spikes, axis=1)


class Readout(layers.Layer):
    """Integrates without firing; the mean potential over time is the logit."""

    def __init__(self, classes, decay=0.8, **kwargs):
        super().__init__(**kwargs)
        self.classes, self.decay = classes, decay
        self.synapse = layers.Dense(classes, name="synapse")

    def build(self, shape):
        self.synapse.build(shape)

    def compute_output_shape(self, shape):
        return (shape[0], self.classes)

    def call(self, x):
        current = self.synapse(x)
        v = ops.zeros_like(current[:, 0])
        total = v
        for t in range(x.shape[1]):
            v = self.decay * v + (1 - self.decay) * current[:, t]
            total = total + v
        return total / x.shape[1]


def build():
    events = keras.Input((12, 10), name="events")
    x = LIF(16, name="first")(events)
    x = LIF(12, name="second")(x)
    return keras.Model(events, Readout(4, name="readout")(x))
