"""Severity grading (0..4) from vital signs: peephole LSTM by hand + cumulative link (ordinal) head."""

import keras
from keras import layers, ops


class PeepholeLSTMCell(layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.state_size = [units, units]
        self.output_size = units

    def build(self, input_shape):
        u = self.units
        self.kernel = self.add_weight(
            name="kernel", shape=(input_shape[-1], 4 * u), initializer="glorot_uniform"
        )
        self.recurrent = self.add_weight(name="recurrent", shape=(u, 4 * u), initializer="orthogonal")
        self.bias = self.add_weight(name="bias", shape=(4 * u,), initializer="zeros")
        init = keras.initializers.RandomNormal(stddev=0.3)
        self.w_ci = self.add_weight(name="w_ci", shape=(u,), initializer=init)
        self.w_cf = self.add_weight(name="w_cf", shape=(u,), initializer=init)
        self.w_co = self.add_weight(name="w_co", shape=(u,), initializer=init)

    def call(self, inputs, states, training=None):
        h, c = states
        z = ops.matmul(inputs, self.kernel) + ops.matmul(h, self.recurrent) + self.bias
        zi, zf, zg, zo = ops.split(z, 4, axis=-1)
        i = ops.sigmoid(zi + self.w_ci * c)
        f = ops.sigmoid(zf + self.w_cf * c + 1.0)  # forget bias
        c = f * c + i * ops.tanh(zg)
        o = ops.sigmoid(zo + self.w_co * c)
        h = o * ops.tanh(c)
        return h, [h, c]


class CumulativeLink(layers.Layer):
    """logit P(y > k) = score - theta_k with theta_0 < theta_1 < ..."""

    def __init__(self, levels, **kw):
        super().__init__(**kw)
        self.levels = levels

    def build(self, shape):
        self.score = layers.Dense(1, use_bias=False)
        self.score.build(shape)
        self.first = self.add_weight(name="first", shape=(1,), initializer=keras.initializers.Constant(-1.0))
        self.gaps = self.add_weight(name="gaps", shape=(self.levels - 2,), initializer="zeros")

    def call(self, x):
        theta = ops.cumsum(ops.concatenate([self.first, ops.softplus(self.gaps)]))
        return self.score(x) - theta


def build(levels=5):
    inp = keras.Input((12, 4), name="vitals")
    x = layers.RNN(PeepholeLSTMCell(14), return_sequences=True, name="peephole")(inp)
    x = layers.LayerNormalization(name="norm")(x)
    avg = layers.GlobalAveragePooling1D()(x)
    last = x[:, -1]
    x = layers.Concatenate()([avg, last])
    x = layers.Dense(12, activation="leaky_relu", name="mix")(x)
    return keras.Model(inp, CumulativeLink(levels, name="ordinal")(x))


def loss(y_true, y_pred):
    k = ops.arange(4)
    y = ops.cast(ops.reshape(y_true, (-1, 1)), "int32")
    above = ops.cast(y > ops.cast(k, "int32"), y_pred.dtype)
    return ops.sum(ops.binary_crossentropy(above, y_pred, from_logits=True), axis=-1)
