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
        self.peep_i = self.add_weight(shape=(u,), initializer="zeros", name="peep_i")
        self.peep_f = self.add_weight(shape=(u,), initializer="zeros", name="peep_f")
        self.peep_o = self.add_weight(shape=(u,), initializer="zeros", name="peep_o")

    def call(self, x, states):
        h, c = states
        z = ops.matmul(x, self.kernel) + ops.matmul(h, self.recurrent) + self.bias
        zi, zf, zg, zo = ops.split(z, 4, axis=-1)
        i = ops.sigmoid(zi + self.peep_i * c)
        f = ops.sigmoid(zf + self.peep_f * c + 1.0)
        c = f * c + i * ops.tanh(zg)
        o = ops.sigmoid(zo + self.peep_o * c)
        h = o * ops.tanh(c)
        return h, [h, c]


def build(steps=24, ahead=3):
    gauge = keras.Input((steps, 2), name="gauge")
    slope = gauge[:, 1:] - gauge[:, :-1]
    x = ops.concatenate([gauge[:, 1:], slope], axis=-1)
    h = layers.RNN(PeepholeCell(14), return_sequences=True, go_backwards=True)(x)
    h = layers.RNN(PeepholeCell(10))(h)
    trend = layers.Dense(ahead, name="trend")(h)
    season = layers.Dense(ahead, use_bias=False, name="season")(layers.Flatten()(slope[:, ::4]))
    level = gauge[:, -1, :1]
    return keras.Model(gauge, level + trend + season)
