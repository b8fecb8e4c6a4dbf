"""EA-LSTM (Kratzert et al.): daily runoff of gauged basins from weather and static attributes."""

import keras
from keras import initializers, layers, ops

DAYS, SPIN_UP, UNITS = 24, 10, 16


class EALSTM(layers.Layer):
    """LSTM whose input gate depends on the basin only."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, dynamic_shape, static_shape):
        u = self.units
        self.kernel = self.add_weight(
            shape=(dynamic_shape[-1], 3 * u), initializer="glorot_uniform", name="kernel"
        )
        self.recurrent = self.add_weight(shape=(u, 3 * u), initializer="orthogonal", name="recurrent")
        self.bias = self.add_weight(shape=(3 * u,), initializer=initializers.Constant(0.5), name="bias")
        self.static_kernel = self.add_weight(
            shape=(static_shape[-1], u), initializer="glorot_uniform", name="static_kernel"
        )
        self.static_bias = self.add_weight(shape=(u,), initializer="zeros", name="static_bias")

    def call(self, dynamic, static):
        i = ops.sigmoid(ops.matmul(static, self.static_kernel) + self.static_bias)
        h = c = ops.zeros_like(i)
        states = []
        for x in ops.unstack(dynamic, DAYS, axis=1):
            z = ops.matmul(x, self.kernel) + ops.matmul(h, self.recurrent) + self.bias
            f, o, g = ops.split(z, 3, axis=-1)
            c = ops.sigmoid(f) * c + i * ops.tanh(g)
            h = ops.sigmoid(o) * ops.tanh(c)
            states.append(h)
        return ops.stack(states, axis=1)


class BasinNSE(keras.losses.Loss):
    """Squared error over (std of the basin's runoff + 0.1)^2; y holds runoff and that std."""

    def call(self, y_true, y_pred):
        q, std = y_true[..., 0], y_true[..., 1]
        return ops.mean(ops.square(y_pred - q) / ops.square(std + 0.1), axis=-1)


def build():
    dynamic = keras.Input((DAYS, 5), name="dynamic")
    static = keras.Input((7,), name="static")
    h = EALSTM(UNITS)(dynamic, static)
    h = h[:, SPIN_UP:]
    h = layers.Dropout(0.4)(h)
    q = layers.Dense(1, activation="softplus")(h)
    q = layers.Reshape((DAYS - SPIN_UP,))(q)
    model = keras.Model([dynamic, static], q)
    model.compile(keras.optimizers.Adam(5e-3), loss=BasinNSE())
    return model
