import keras
from keras import layers, ops


class PeepholeCell(layers.Layer):
    def __init__(self, units, **kw):
        super().__init__(**kw)
        self.units = units
        self.state_size = [units, units]
        self.output_size = units

    def build(self, shape):
        u = self.units
        self.kernel = self.add_weight(shape=(shape[-1], 4 * u), initializer="glorot_uniform", name="kernel")
        self.recurrent = self.add_weight(shape=(u, 4 * u), initializer="orthogonal", name="recurrent")
        self.bias = self.add_weight(shape=(4 * u,), initializer="zeros", name="bias")
        init = keras.initializers.RandomUniform(-0.8, 0.8)
        self.peep_i = self.add_weight(shape=(u,), initializer=init, name="peep_i")
        self.peep_f = self.add_weight(shape=(u,), initializer=init, name="peep_f")
        self.peep_o = self.add_weight(shape=(u,), initializer=init, name="peep_o")
        self.built = True

    def call(self, x, states, training=None):
        h, c = states
        z = ops.matmul(x, self.kernel) + ops.matmul(h, self.recurrent) + self.bias
        zi, zf, zg, zo = ops.split(z, 4, axis=-1)
        i = ops.sigmoid(zi + self.peep_i * c)
        f = ops.sigmoid(zf + self.peep_f * c + 1.0)
        c_new = f * c + i * ops.tanh(zg)
        o = ops.sigmoid(zo + self.peep_o * c_new)
        h_new = o * ops.tanh(c_new)
        return h_new, [h_new, c_new]


class Forecaster(keras.Model):
    def __init__(self):
        super().__init__(name="forecaster")
        self.first = layers.RNN(PeepholeCell(14, name="cell_a"), return_sequences=True, name="first")
        self.second = layers.RNN(PeepholeCell(9, name="cell_b"), name="second")
        self.hidden = layers.Dense(8, activation="relu", name="hidden")
        self.out = layers.Dense(3, name="out")

    def call(self, x, training=None):
        h = self.first(x)
        h = self.second(h)
        return self.out(self.hidden(h))


def build():
    m = Forecaster()
    m(ops.zeros((2, 15, 4)))
    return m
