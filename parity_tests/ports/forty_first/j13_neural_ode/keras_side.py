import numpy as np
import tensorflow as tf
from tensorflow import keras

STEPS = 12
H = np.float32(0.25)
GRID = (np.arange(STEPS) * H).astype("float32")
OMEGA = np.float32(2 * np.pi) / np.array([1.0, 1.5, 3.0], dtype=np.float32)


@keras.utils.register_keras_serializable()
class Field(keras.layers.Layer):
    """dz/dt, gated by the time."""

    def __init__(self, latent, width=20, **kw):
        super().__init__(**kw)
        self.inner = keras.layers.Dense(width, activation="tanh", name="inner")
        self.middle = keras.layers.Dense(width, activation="tanh", name="middle")
        self.gate = keras.layers.Dense(width, activation="sigmoid", name="gate")
        self.outer = keras.layers.Dense(latent, name="outer")
        self.latent, self.width = latent, width

    def build(self, shape):
        self.inner.build((None, self.latent + 6))
        self.middle.build((None, self.width))
        self.gate.build((None, 6))
        self.outer.build((None, self.width))

    def call(self, z, t):
        w = OMEGA * t
        f = tf.concat([tf.sin(w), tf.cos(w)], 0)
        f = tf.tile(f[None], [tf.shape(z)[0], 1])
        h = self.middle(self.inner(tf.concat([z, f], -1)))
        return self.outer(h * self.gate(f))


class Trajectory(keras.layers.Layer):
    def __init__(self, latent, **kw):
        super().__init__(**kw)
        self.field = Field(latent, name="field")

    def build(self, shape):
        self.field.build(shape)

    def call(self, z):
        out = []
        for t in GRID:
            k1 = self.field(z, t)
            k2 = self.field(z + H / 2 * k1, t + H / 2)
            k3 = self.field(z + H / 2 * k2, t + H / 2)
            k4 = self.field(z + H * k3, t + H)
            z = z + H / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            out.append(z)
        return tf.stack(out, 1)


def build():
    start = keras.Input((2,), name="start")
    par = keras.Input((2,), name="par")
    x = keras.layers.Concatenate(name="both")([start, par])
    z = keras.layers.Dense(16, activation="softplus", name="enc1")(x)
    z = keras.layers.Dense(6, name="enc2")(z)
    z = Trajectory(6, name="rk4")(z)
    y = keras.layers.Dense(12, activation="leaky_relu", name="dec1")(z)
    return keras.Model({"start": start, "par": par}, keras.layers.Dense(2, name="dec2")(y))


def loss(track, pred):
    """track: the values, then which of them are there. A mean over those of each trajectory."""
    value, there = tf.split(track, 2, axis=-1)
    se = there * tf.math.squared_difference(pred, value)
    return tf.math.divide_no_nan(tf.reduce_sum(se, [1, 2]), tf.reduce_sum(there, [1, 2]))


def optimizer():
    return keras.optimizers.SGD(learning_rate=0.1, momentum=0.8, clipnorm=0.1)
