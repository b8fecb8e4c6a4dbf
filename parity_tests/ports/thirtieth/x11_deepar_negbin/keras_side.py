"""DeepAR for count demand: layer-normalised LSTM, negative-binomial likelihood.

x[..., 0] is the lagged demand, the rest are covariates. Output: (mu, alpha) per step.
"""

import keras
import tensorflow as tf
from keras import layers, ops

STEPS, FEATURES, UNITS = 20, 4, (14, 10)


class LayerNormLSTMCell(layers.Layer):
    def __init__(self, units, **kw):
        super().__init__(**kw)
        self.units = units
        self.state_size = [units, units]
        self.output_size = units
        self.norm_x = layers.LayerNormalization(epsilon=1e-5, center=False, name="norm_x")
        self.norm_h = layers.LayerNormalization(epsilon=1e-5, center=False, name="norm_h")
        self.norm_c = layers.LayerNormalization(epsilon=1e-5, name="norm_c")

    def build(self, shape):
        n = 4 * self.units
        self.kernel = self.add_weight(name="kernel", shape=(shape[-1], n), initializer="glorot_uniform")
        self.recurrent = self.add_weight(name="recurrent", shape=(self.units, n), initializer="orthogonal")
        self.bias = self.add_weight(name="bias", shape=(n,), initializer="zeros")
        self.norm_x.build((None, n))
        self.norm_h.build((None, n))
        self.norm_c.build((None, self.units))

    def call(self, inputs, states, training=None):
        h, c = states
        z = self.norm_x(ops.matmul(inputs, self.kernel))
        z = z + self.norm_h(ops.matmul(h, self.recurrent)) + self.bias
        i, f, g, o = ops.split(z, 4, axis=-1)
        c = ops.sigmoid(f + 1.0) * c + ops.sigmoid(i) * ops.tanh(g)
        h = ops.sigmoid(o) * ops.tanh(self.norm_c(c))
        return h, [h, c]

    def get_initial_state(self, batch_size=None):
        zero = ops.zeros((batch_size, self.units), dtype=self.compute_dtype)
        return [zero, zero]


class DeepAR(keras.Model):
    def __init__(self, **kw):
        super().__init__(**kw)
        self.rnn = layers.RNN(
            [LayerNormLSTMCell(u, name=f"cell{i}") for i, u in enumerate(UNITS)],
            return_sequences=True,
            name="rnn",
        )
        self.mu = layers.Dense(1, name="mu")
        self.alpha = layers.Dense(1, name="alpha")

    def call(self, x):
        scale = 1.0 + ops.mean(x[..., :1], axis=1, keepdims=True)
        h = self.rnn(ops.concatenate([x[..., :1] / scale, x[..., 1:]], axis=-1))
        mu = ops.softplus(self.mu(h)) * scale
        alpha = ops.softplus(self.alpha(h)) / ops.sqrt(scale)
        return ops.concatenate([mu, alpha], axis=-1)


def negbin_nll(y_true, y_pred):
    y = ops.cast(y_true, y_pred.dtype)
    mu, alpha = y_pred[..., 0], y_pred[..., 1]
    r = 1.0 / alpha
    am = alpha * mu
    ll = (
        tf.math.lgamma(y + r)
        - tf.math.lgamma(r)
        - tf.math.lgamma(y + 1.0)
        - r * ops.log1p(am)
        + y * (ops.log(am) - ops.log1p(am))
    )
    return -ops.mean(ll)


def build():
    model = DeepAR(name="deepar")
    model(ops.zeros((1, STEPS, FEATURES)))
    return model
