"""A unitary recurrent network (Arjovsky, Shah, Bengio) for the adding problem."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

UNITS = 16
PERMUTATION = np.random.default_rng(7).permutation(UNITS)


def rotate(h, angle):
    return h * tf.complex(tf.cos(angle), tf.sin(angle))


def reflect(h, vector):
    """Mirrors at the plane that the vector stands upright on."""
    v = tf.complex(vector[0], vector[1])
    along = tf.reduce_sum(tf.math.conj(v) * h, axis=-1, keepdims=True)
    length = tf.reduce_sum(tf.square(vector))
    return h - 2 * along * v / tf.cast(length, h.dtype)


class UnitaryRNN(layers.Layer):
    def __init__(self, units=UNITS, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, shape):
        angle = keras.initializers.RandomUniform(-np.pi, np.pi, seed=11)
        small = keras.initializers.RandomUniform(-1, 1, seed=12)
        self.angles = [
            self.add_weight(shape=(self.units,), initializer=angle.clone(), name=f"angle{i}")
            for i in range(3)
        ]
        self.mirrors = [
            self.add_weight(shape=(2, self.units), initializer=small.clone(), name=f"mirror{i}")
            for i in range(2)
        ]
        self.kernel = self.add_weight(shape=(shape[-1], 2 * self.units), name="kernel")
        self.bias = self.add_weight(shape=(self.units,), initializer="zeros", name="bias")
        self.start = self.add_weight(shape=(2, self.units), initializer=small.clone(), name="start")

    def transition(self, h):
        scale = tf.cast(np.sqrt(self.units), h.dtype)
        h = tf.signal.fft(rotate(h, self.angles[0])) / scale
        h = reflect(h, self.mirrors[0])
        h = tf.gather(h, PERMUTATION, axis=1)
        h = tf.signal.ifft(rotate(h, self.angles[1])) * scale
        return rotate(reflect(h, self.mirrors[1]), self.angles[2])

    def call(self, x):
        start = tf.complex(self.start[0], self.start[1])
        h = tf.repeat(start[None], tf.shape(x)[0], axis=0)
        for t in range(x.shape[1]):
            real, imaginary = tf.split(x[:, t] @ self.kernel, 2, axis=-1)
            h = self.transition(h) + tf.complex(real, imaginary)
            size = tf.abs(h)
            h = h * tf.cast(tf.nn.relu(size + self.bias) / (size + 1e-5), h.dtype)
        return tf.concat([tf.math.real(h), tf.math.imag(h)], axis=-1)


def build():
    inputs = keras.Input((14, 2), name="x")
    return keras.Model(inputs, layers.Dense(1, name="sum")(UnitaryRNN(name="rnn")(inputs)))
