"""Both directions of an LSTM with layer norms inside its cell; sensor sequences of various lengths."""

import keras
import tensorflow as tf
from keras import layers, ops


class LayerNormLSTMCell(layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.state_size = [units, units]
        self.output_size = units
        self.norm_x = layers.LayerNormalization(epsilon=1e-5, name="norm_x")
        self.norm_h = layers.LayerNormalization(epsilon=1e-5, name="norm_h")
        self.norm_c = layers.LayerNormalization(epsilon=1e-5, name="norm_c")

    def build(self, shape):
        n = self.units
        self.kernel = self.add_weight(name="kernel", shape=(shape[-1], 4 * n), initializer="glorot_uniform")
        self.recurrent_kernel = self.add_weight(
            name="recurrent_kernel", shape=(n, 4 * n), initializer="orthogonal"
        )
        self.norm_x.build((None, 4 * n))
        self.norm_h.build((None, 4 * n))
        self.norm_c.build((None, n))

    def call(self, x, states):
        h, c = states
        z = self.norm_x(ops.matmul(x, self.kernel)) + self.norm_h(ops.matmul(h, self.recurrent_kernel))
        i, f, g, o = ops.split(z, 4, axis=-1)
        c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
        h = ops.sigmoid(o) * ops.tanh(self.norm_c(c))
        return h, [h, c]


class ReadBothWays(layers.Layer):
    """The state after the last step that exists, read forwards and read backwards."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.forwards = layers.RNN(
            LayerNormLSTMCell(units, name="cell_f"), return_sequences=True, name="forwards"
        )
        self.backwards = layers.RNN(
            LayerNormLSTMCell(units, name="cell_b"), return_sequences=True, name="backwards"
        )

    def build(self, x_shape, length_shape):
        self.forwards.build(x_shape)
        self.backwards.build(x_shape)

    def call(self, x, length):
        at = (length - 1)[:, None, None]
        mirrored = tf.reverse_sequence(x, length, seq_axis=1)
        ends = [
            ops.take_along_axis(y, at, axis=1)[:, 0] for y in (self.forwards(x), self.backwards(mirrored))
        ]
        return ops.concatenate(ends, axis=-1)


def build(steps=16, features=4, units=14, classes=4):
    x = keras.Input((steps, features), name="x")
    length = keras.Input((), dtype="int32", name="length")
    h = ReadBothWays(units, name="reader")(x, length)
    h = layers.Dropout(0.2, name="drop")(h)
    return keras.Model([x, length], layers.Dense(classes, name="label")(h))
