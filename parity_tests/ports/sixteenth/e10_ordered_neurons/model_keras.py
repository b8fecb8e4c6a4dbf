"""A language model of ordered neurons (ON-LSTM, Shen et al. 2019), whose cell begins with a state that is learned."""

import keras
from keras import layers, ops


def cumax(x):
    return ops.cumsum(ops.softmax(x, axis=-1), axis=-1)


class ONLSTMCell(layers.Layer):
    def __init__(self, units, chunk, **kwargs):
        super().__init__(**kwargs)
        self.units, self.chunk, self.levels = units, chunk, units // chunk
        self.state_size = [units, units]
        self.output_size = units

    def build(self, shape):
        width = 4 * self.units + 2 * self.levels
        self.kernel = self.add_weight(shape=(shape[-1], width), name="kernel")
        self.recurrent_kernel = self.add_weight(
            shape=(self.units, width), initializer="orthogonal", name="recurrent_kernel"
        )
        self.bias = self.add_weight(shape=(width,), initializer="zeros", name="bias")
        self.first = self.add_weight(shape=(2, self.units), initializer="zeros", name="first")
        self.built = True

    def get_initial_state(self, batch_size=None):
        return [ops.tile(self.first[i : i + 1], (batch_size, 1)) for i in range(2)]

    def call(self, x, states, training=None):
        h, c = states
        z = ops.matmul(x, self.kernel) + ops.matmul(h, self.recurrent_kernel) + self.bias
        n, u = self.levels, self.units
        master_forget = cumax(z[:, :n])
        master_input = 1.0 - cumax(z[:, n : 2 * n])
        forget, take, out = ops.split(ops.sigmoid(z[:, 2 * n : 2 * n + 3 * u]), 3, axis=-1)
        candidate = ops.tanh(z[:, 2 * n + 3 * u :])

        master_forget = ops.repeat(master_forget, self.chunk, axis=-1)
        master_input = ops.repeat(master_input, self.chunk, axis=-1)
        overlap = master_forget * master_input
        forget = forget * overlap + (master_forget - overlap)
        take = take * overlap + (master_input - overlap)
        c = forget * c + take * candidate
        h = out * ops.tanh(c)
        return h, [h, c]


def build(words=18, width=14):
    tokens = keras.Input((10,), dtype="int32", name="tokens")
    x = layers.Embedding(words, width, name="words")(tokens)
    x = layers.SpatialDropout1D(0.2)(x)
    x = layers.RNN(ONLSTMCell(24, 4), return_sequences=True, name="lower")(x)
    x = layers.Dropout(0.3)(x)
    x = layers.RNN(ONLSTMCell(16, 4), return_sequences=True, name="upper")(x)
    return keras.Model(tokens, layers.Dense(words, name="next_word")(x))
