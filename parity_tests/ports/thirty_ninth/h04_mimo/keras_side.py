"""Uplink MIMO-OFDM channel estimation from noisy least-squares pilots (antennas x subcarriers x re/im)."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

ANT, SUB, FEAT = 8, 16, 16


def _dft(n, inverse=False):
    k = np.outer(np.arange(n), np.arange(n))
    m = np.exp((2j if inverse else -2j) * np.pi * k / n) / np.sqrt(n)
    return m.real.astype("float32"), m.imag.astype("float32")


DFT_ANT, IDFT_ANT = _dft(ANT), _dft(ANT, True)
DFT_SUB, IDFT_SUB = _dft(SUB), _dft(SUB, True)


def transform(h, matrix, equation):
    """Complex matrix product of (.., 2) tensors written with real parts."""
    c, s = (tf.cast(tf.constant(m), h.dtype) for m in matrix)
    re, im = h[..., 0], h[..., 1]
    e = lambda m, a: tf.einsum(equation, m, a)
    return tf.stack([e(c, re) - e(s, im), e(c, im) + e(s, re)], axis=-1)


class WrapConv(layers.Layer):
    def __init__(self, filters, **kw):
        super().__init__(**kw)
        self.conv = layers.Conv2D(filters, 3, padding="valid")

    def call(self, x):
        x = ops.concatenate([x[:, -1:], x, x[:, :1]], axis=1)
        x = ops.concatenate([x[:, :, -1:], x, x[:, :, :1]], axis=2)
        return self.conv(x)


class DelayMixer(layers.Layer):
    """A complex matrix over the delay taps, and a modReLU; the first half of the features is real, the second imaginary."""

    def build(self, shape):
        t, f = shape[2], shape[3]
        init = keras.initializers.RandomNormal(stddev=0.2)
        self.wr = self.add_weight(shape=(t, t), initializer=init, name="wr")
        self.wi = self.add_weight(shape=(t, t), initializer=init, name="wi")
        self.b = self.add_weight(shape=(f // 2,), initializer=keras.initializers.Constant(-0.05), name="b")

    def call(self, x):
        re, im = ops.split(x, 2, axis=-1)
        mul = lambda a, w: ops.einsum("ntsf,sd->ntdf", a, w)
        yr, yi = mul(re, self.wr) - mul(im, self.wi), mul(re, self.wi) + mul(im, self.wr)
        mag = ops.sqrt(ops.square(yr) + ops.square(yi) + 1e-5)
        g = ops.relu(mag + self.b) / mag
        return ops.concatenate([g * yr, g * yi], axis=-1)


class Estimator(keras.Model):
    def __init__(self):
        super().__init__(name="estimator")
        self.c1 = WrapConv(FEAT, name="c1")
        self.bn1 = layers.BatchNormalization(momentum=0.95, epsilon=1e-4, name="bn1")
        self.a1 = layers.PReLU(
            shared_axes=[1, 2], alpha_initializer=keras.initializers.Constant(0.2), name="a1"
        )
        self.film = layers.Dense(2 * FEAT, name="film")
        self.mix = DelayMixer(name="mix")
        self.c2 = WrapConv(FEAT, name="c2")
        self.bn2 = layers.BatchNormalization(momentum=0.95, epsilon=1e-4, name="bn2")
        self.c3 = WrapConv(2, name="c3")

    def call(self, inputs, training=False):
        y, snr_db = inputs["y"], inputs["snr_db"]
        power = tf.sqrt(tf.reduce_mean(tf.square(y), axis=[1, 2, 3], keepdims=True) * 2.0)
        z = transform(y / power, DFT_ANT, "ab,nbs->nas")
        z = transform(z, IDFT_SUB, "ds,nas->nad")
        x = self.a1(self.bn1(self.c1(z), training=training))
        noise = tf.pow(tf.constant(10.0, snr_db.dtype), -snr_db / 20.0)
        scale, shift = ops.split(
            self.film(ops.concatenate([noise, snr_db / 20.0], -1))[:, None, None], 2, axis=-1
        )
        x = x * (1.0 + scale) + shift
        x = x + self.mix(x)
        x = x + tf.nn.softsign(self.bn2(self.c2(x), training=training))
        z = z - self.c3(x)
        z = transform(z, DFT_SUB, "sd,nad->nas")
        return power * transform(z, IDFT_ANT, "ab,nbs->nas")


def build():
    model = Estimator()
    model({"y": np.ones((2, ANT, SUB, 2), "float32"), "snr_db": np.ones((2, 1), "float32")})
    return model


def nmse(h, estimate):
    h = tf.cast(h, estimate.dtype)
    error = tf.reduce_sum(tf.math.squared_difference(h, estimate), axis=[1, 2, 3])
    return tf.reduce_mean(error / tf.reduce_sum(h * h, axis=[1, 2, 3]))
