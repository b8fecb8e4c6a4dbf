"""Kalman filter with learned dynamics over learned measurements, some of which are missing."""

import keras
from keras import layers, ops

STATE, SEEN = 4, 2


def near_identity(shape, dtype=None):
    return ops.eye(shape[0], shape[1], dtype=dtype) + keras.random.normal(
        shape, stddev=0.05, dtype=dtype, seed=3
    )


class KalmanFilter(layers.Layer):
    """z (batch, time, SEEN) and present (batch, time) -> filtered means (batch, time, STATE)."""

    def build(self, z_shape, present_shape):
        self.dynamics = self.add_weight(shape=(STATE, STATE), initializer=near_identity, name="dynamics")
        self.emission = self.add_weight(shape=(SEEN, STATE), initializer="glorot_normal", name="emission")
        self.log_q = self.add_weight(
            shape=(STATE,), initializer=keras.initializers.Constant(-2.0), name="log_q"
        )
        self.log_r = self.add_weight(
            shape=(SEEN,), initializer=keras.initializers.Constant(-1.0), name="log_r"
        )

    def call(self, z, present):
        a, h = self.dynamics, self.emission
        q, r = ops.diag(ops.exp(self.log_q)), ops.diag(ops.exp(self.log_r))
        mean = ops.zeros_like(z[:, 0, :1]) * ops.ones((1, STATE), dtype=z.dtype)
        cov = ops.zeros_like(mean)[:, :, None] + ops.eye(STATE, dtype=z.dtype)
        means = []
        for t in range(z.shape[1]):
            mean = ops.matmul(mean, ops.transpose(a))
            cov = ops.matmul(ops.matmul(a, cov), ops.transpose(a)) + q
            cross = ops.matmul(h, cov)
            innovation_cov = ops.matmul(cross, ops.transpose(h)) + r
            gain = ops.transpose(ops.solve(innovation_cov, cross), (0, 2, 1))
            gain = gain * present[:, t, None, None]
            innovation = z[:, t] - ops.matmul(mean, ops.transpose(h))
            mean = mean + ops.einsum("nso,no->ns", gain, innovation)
            cov = cov - ops.matmul(gain, cross)
            means.append(mean)
        return ops.stack(means, axis=1)


def build():
    x = keras.Input((12, 3), name="x")
    present = keras.Input((12,), name="present")
    z = layers.Dense(32, activation="tanh", name="sense")(x)
    z = layers.Dense(SEEN, name="measure")(z)
    states = KalmanFilter(name="filter")(z, present)
    summary = layers.Concatenate()([states[:, -1], ops.mean(states, axis=1)])
    h = layers.Dense(32, activation="tanh", name="forecast")(summary)
    return keras.Model([x, present], layers.Dense(2, name="position")(h))
