"""The sea floor under a ship from the echoes of twenty beams."""

import keras
import tensorflow as tf
from keras import layers, ops


class WeightNormUp(layers.Layer):
    """A transposed convolution of stride 2; each output channel's kernel is g * v / |v|."""

    def __init__(self, filters, size=4, **kw):
        super().__init__(**kw)
        self.filters, self.size = filters, size

    def build(self, shape):
        self.v = self.add_weight(
            shape=(self.size, self.size, self.filters, shape[-1]), initializer="he_normal", name="v"
        )
        self.g = self.add_weight(shape=(self.filters,), initializer="ones", name="g")
        self.bias = self.add_weight(shape=(self.filters,), initializer="zeros", name="bias")

    def call(self, t):
        norm = tf.sqrt(tf.reduce_sum(tf.square(self.v), axis=[0, 1, 3]))
        kernel = tf.convert_to_tensor(self.v) * (self.g / norm)[None, None, :, None]
        s = tf.shape(t)
        out = tf.nn.conv2d_transpose(
            t, kernel, (s[0], 2 * t.shape[1], 2 * t.shape[2], self.filters), strides=2, padding="SAME"
        )
        return tf.nn.bias_add(out, self.bias)

    def compute_output_shape(self, s):
        return (s[0], 2 * s[1], 2 * s[2], self.filters)


def build():
    keras.utils.set_random_seed(43)
    x = keras.Input((20,), name="x")
    h = layers.Dense(32, activation="selu", name="fc1")(x)
    h = layers.Dense(4 * 4 * 12, activation="selu", name="fc2")(h)
    h = layers.Reshape((4, 4, 12), name="seed")(h)
    h = layers.Activation("selu", name="act1")(WeightNormUp(12, name="up1")(h))
    h = layers.Activation("selu", name="act2")(WeightNormUp(12, name="up2")(h))
    h = layers.Conv2D(1, 3, padding="same", activation="tanh", name="floor")(h)
    return keras.Model(x, layers.Lambda(lambda t: ops.squeeze(t, axis=-1), name="depth")(h))


def optimizer():
    return keras.optimizers.SGD(
        keras.optimizers.schedules.PiecewiseConstantDecay([15, 30], [0.1, 0.02, 0.004])
    )
