# Probabilistic wind power: mixture of Gaussians censored to [0, capacity].
import numpy as np
import tensorflow as tf
from tensorflow import keras

K = 5
MIN_SIGMA = 0.05
# u10 v10 u100 v100 t2m(K) msl(hPa) hour
FEATURE_MEAN = np.array([5.5, 8.0, 0.15, 1.22, 280.0], np.float32)
FEATURE_STD = np.array([2.6, 3.4, 0.1, 0.05, 8.0], np.float32)
HARMONICS = np.array([1.0, 2.0], np.float32)


class Weather(keras.layers.Layer):
    def call(self, x):
        u10, v10, u100, v100, t, p, hour = tf.unstack(x, axis=-1)
        s10 = tf.sqrt(u10**2 + v10**2 + 0.01)
        s100 = tf.sqrt(u100**2 + v100**2 + 0.01)
        shear = tf.math.log(s100 / s10) / np.float32(np.log(10.0))
        rho = 100.0 * p / (287.05 * t)
        base = (tf.stack([s10, s100, shear, rho, t], -1) - FEATURE_MEAN) / FEATURE_STD
        wdir = tf.atan2(u100, v100)[:, None] * HARMONICS
        day = (2 * np.pi / 24.0) * hour[:, None] * HARMONICS[:1]
        return tf.concat([base, tf.sin(wdir), tf.cos(wdir), tf.sin(day), tf.cos(day)], -1)


class Residual(keras.layers.Layer):
    def __init__(self, units, **kw):
        super().__init__(**kw)
        self.norm = keras.layers.LayerNormalization(epsilon=1e-5)
        self.up = keras.layers.Dense(2 * units, activation="swish")
        self.down = keras.layers.Dense(units)

    def call(self, x):
        return x + self.down(self.up(self.norm(x)))


class WindMDN(keras.Model):
    def __init__(self, units=32):
        super().__init__(name="wind_mdn")
        self.weather = Weather()
        self.stem = keras.layers.Dense(units, activation="tanh")
        self.blocks = [Residual(units, name=f"res{i}") for i in range(3)]
        self.last = keras.layers.LayerNormalization(epsilon=1e-5)
        self.params = keras.layers.Dense(3 * K, name="mixture")

    def call(self, x):
        h = self.stem(self.weather(x))
        for b in self.blocks:
            h = b(h)
        return self.params(self.last(h))


def nll(y, out):
    logit, mu, raw = tf.split(out, 3, axis=-1)
    sigma = tf.nn.softplus(raw) + MIN_SIGMA
    y = tf.cast(tf.reshape(y, (-1, 1)), out.dtype)

    def log_cdf(z):
        return tf.math.log(0.5 * tf.math.erfc(-z / np.float32(np.sqrt(2.0))))

    inside = -0.5 * tf.square((y - mu) / sigma) - tf.math.log(sigma) - np.float32(0.5 * np.log(2 * np.pi))
    comp = tf.where(y <= 0.0, log_cdf(-mu / sigma), tf.where(y >= 1.0, log_cdf((mu - 1.0) / sigma), inside))
    return -tf.reduce_logsumexp(tf.nn.log_softmax(logit) + comp, axis=-1)


def build():
    model = WindMDN()
    model(np.ones((1, 7), np.float32))
    return model
