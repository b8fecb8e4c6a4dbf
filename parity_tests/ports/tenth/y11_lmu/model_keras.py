"""A Legendre memory unit: a linear memory of the last THETA steps, written and read by a small recurrent net."""

import keras
import numpy as np
from keras import layers, ops

ORDER, THETA, HIDDEN = 8, 16.0, 20


def legendre_memory(order, theta):
    """The delay network's A and B, discretised by Tustin's method"""
    q = np.arange(order)
    scale = (2 * q + 1)[:, None] / theta
    row, column = np.meshgrid(q, q, indexing="ij")
    a = scale * np.where(row < column, -1.0, (-1.0) ** (row - column + 1))
    b = scale * ((-1.0) ** q)[:, None]
    left = np.linalg.inv(np.eye(order) - a / 2)
    return left @ (np.eye(order) + a / 2), left @ b


class LMUCell(layers.Layer):
    def __init__(self, hidden, order, theta, **kwargs):
        super().__init__(**kwargs)
        self.hidden, self.order = hidden, order
        self.state_size = [hidden, order]
        self.output_size = hidden
        self.a, self.b = legendre_memory(order, theta)

    def build(self, input_shape):
        inputs = input_shape[-1]
        uniform = keras.initializers.LecunUniform
        self.input_encoder = self.add_weight(shape=(inputs, 1), initializer=uniform(), name="input_encoder")
        self.hidden_encoder = self.add_weight(
            shape=(self.hidden, 1), initializer=uniform(), name="hidden_encoder"
        )
        self.memory_encoder = self.add_weight(
            shape=(self.order, 1), initializer="zeros", name="memory_encoder"
        )
        glorot = keras.initializers.GlorotNormal
        self.input_kernel = self.add_weight(
            shape=(inputs, self.hidden), initializer=glorot(), name="input_kernel"
        )
        self.hidden_kernel = self.add_weight(
            shape=(self.hidden, self.hidden), initializer=glorot(), name="hidden_kernel"
        )
        self.memory_kernel = self.add_weight(
            shape=(self.order, self.hidden), initializer=glorot(), name="memory_kernel"
        )

    def call(self, inputs, states, training=None):
        h, m = states
        u = (
            ops.matmul(inputs, self.input_encoder)
            + ops.matmul(h, self.hidden_encoder)
            + ops.matmul(m, self.memory_encoder)
        )
        a = ops.convert_to_tensor(self.a.T, dtype=inputs.dtype)
        b = ops.convert_to_tensor(self.b.T, dtype=inputs.dtype)
        m = ops.matmul(m, a) + ops.matmul(u, b)
        h = ops.tanh(
            ops.matmul(inputs, self.input_kernel)
            + ops.matmul(h, self.hidden_kernel)
            + ops.matmul(m, self.memory_kernel)
        )
        return h, [h, m]


def build():
    series = keras.Input((40, 1), name="series")
    x = layers.RNN(LMUCell(HIDDEN, ORDER, THETA, name="cell"), name="lmu")(series)
    return keras.Model(series, layers.Dense(1, name="forecast")(x))


def loss(y_true, y_pred):
    error = ops.reshape(y_pred, (-1,)) - ops.cast(ops.reshape(y_true, (-1,)), y_pred.dtype)
    return ops.square(error)
