"""Gas mixtures from a drifting sensor array: Legendre memory units, centred AdaBelief with warm restarts."""

import math

import keras
import numpy as np
from keras import layers, ops


def legendre(order, theta):
    q = np.arange(order)
    r = (2 * q + 1)[:, None] / theta
    i, j = np.meshgrid(q, q, indexing="ij")
    a = r * np.where(i < j, -1.0, (-1.0) ** (i - j + 1))
    b = r * ((-1.0) ** q)[:, None]
    # bilinear discretisation, a step of one
    left = np.linalg.inv(np.eye(order) - a / 2)
    return (left @ (np.eye(order) + a / 2)).astype(np.float32), (left @ b)[:, 0].astype(np.float32)


class LMUCell(layers.Layer):
    def __init__(self, units, channels, order, theta, **kw):
        super().__init__(**kw)
        self.units, self.channels, self.order = units, channels, order
        self.a, self.b = legendre(order, theta)
        self.state_size = [units, channels * order]
        self.output_size = units
        self.encode_x = layers.Dense(channels, use_bias=False, name="encode_x")
        self.encode_h = layers.Dense(channels, use_bias=False, name="encode_h")
        self.kernel_x = layers.Dense(units, name="kernel_x")
        self.kernel_h = layers.Dense(units, use_bias=False, kernel_initializer="orthogonal", name="kernel_h")
        self.kernel_m = layers.Dense(units, use_bias=False, name="kernel_m")

    def build(self, shape):
        n = shape[0]
        self.encode_x.build(shape)
        self.kernel_x.build(shape)
        self.encode_h.build((n, self.units))
        self.kernel_h.build((n, self.units))
        self.kernel_m.build((n, self.channels * self.order))

    def call(self, x, states):
        h, m = states
        u = self.encode_x(x) + self.encode_h(h)
        m = ops.reshape(m, (-1, self.channels, self.order))
        m = ops.matmul(m, ops.cast(self.a.T, m.dtype)) + u[..., None] * ops.cast(self.b, m.dtype)
        m = ops.reshape(m, (-1, self.channels * self.order))
        h = ops.tanh(self.kernel_x(x) + self.kernel_h(h) + self.kernel_m(m))
        return h, [h, m]


def build():
    signals = keras.Input((36, 6), name="signals")
    x = layers.Conv1D(10, 3, padding="causal", activation="relu", name="front")(signals)
    x = layers.RNN(LMUCell(16, 4, 5, 18.0, name="cell"), name="lmu")(x)
    x = layers.Dense(12, activation="relu", name="hidden")(x)
    return keras.Model(signals, layers.Dense(3, name="ppm")(x), name="gasarray")


class WarmRestarts(keras.optimizers.schedules.LearningRateSchedule):
    """Cosine cycles; each starts lower than the one before, all come down to the floor."""

    def __init__(self, peak=4e-3, floor=8e-4, first=8, shrink=0.7):
        self.peak, self.floor, self.first, self.shrink = peak, floor, first, shrink

    def __call__(self, step):
        t = ops.cast(step, keras.config.floatx())
        # cycles of first, 2 first, 4 first, ... steps
        cycle = ops.floor(ops.log2(t / self.first + 1.0) + 1e-6)
        start = self.first * (2.0**cycle - 1.0)
        done = (t - start) / (self.first * 2.0**cycle)
        top = self.peak * self.shrink**cycle
        return self.floor + 0.5 * (top - self.floor) * (1.0 + ops.cos(math.pi * done))

    def get_config(self):
        return {"peak": self.peak, "floor": self.floor, "first": self.first, "shrink": self.shrink}


class CentredBelief(keras.optimizers.Optimizer):
    """AdaBelief on gradients centred for each output unit."""

    def __init__(self, learning_rate, beta_1=0.9, beta_2=0.99, epsilon=1e-6, name="centred_belief", **kw):
        super().__init__(learning_rate=learning_rate, name=name, **kw)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.m = [self.add_variable_from_reference(v, name="mean") for v in variables]
        self.s = [self.add_variable_from_reference(v, name="belief") for v in variables]

    def update_step(self, gradient, variable, learning_rate):
        lr = ops.cast(learning_rate, variable.dtype)
        g = ops.cast(gradient, variable.dtype)
        if len(g.shape) > 1:
            g = g - ops.mean(g, axis=list(range(len(g.shape) - 1)), keepdims=True)
        t = ops.cast(self.iterations + 1, variable.dtype)
        i = self._get_variable_index(variable)
        m, s = self.m[i], self.s[i]
        self.assign(m, self.beta_1 * m + (1 - self.beta_1) * g)
        self.assign(s, self.beta_2 * s + (1 - self.beta_2) * ops.square(g - m) + self.epsilon**2)
        m_hat = m / (1 - self.beta_1**t)
        s_hat = s / (1 - self.beta_2**t)
        self.assign_sub(variable, lr * m_hat / (ops.sqrt(s_hat) + self.epsilon))


def optimizer():
    return CentredBelief(WarmRestarts())
