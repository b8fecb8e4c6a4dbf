"""
Factorised-prior image codec (Balle et al. 2017) with a known dither as the noise of the latents.
Outputs: the reconstruction and the bits per pixel; loss = LAMBDA * 255^2 * mse + bits.
"""

import keras
import numpy as np
import tensorflow as tf
from keras.layers import Conv2D, Conv2DTranspose, Input, Layer

SIDE, CH, LATENT = 16, 14, 10
LAMBDA = 0.004
PEDESTAL = np.float32(2.0**-36)
BETA_MIN = np.float32(1e-6)
LIKELIHOOD_MIN = 1e-9


def lower_bound(x, bound):
    """max(x, bound) that lets a gradient through which pulls x up again"""

    @tf.custom_gradient
    def f(x):
        b = tf.cast(bound, x.dtype)

        def grad(dy):
            through = tf.logical_or(x >= b, dy < 0)
            return tf.where(through, dy, tf.zeros_like(dy))

        return tf.maximum(x, b), grad

    return f(x)


def _reparam_init(array):
    return lambda shape, dtype=None: tf.cast(
        tf.sqrt(tf.constant(array, tf.float32) + PEDESTAL), dtype or "float32"
    )


class GDN(Layer):
    def __init__(self, inverse=False, **kw):
        super().__init__(**kw)
        self.inverse = inverse

    def build(self, shape):
        c = shape[-1]
        self.beta_r = self.add_weight(name="beta", shape=(c,), initializer=_reparam_init(np.ones(c)))
        self.gamma_r = self.add_weight(
            name="gamma", shape=(c, c), initializer=_reparam_init(0.1 * np.eye(c) + 0.005)
        )

    def call(self, x):
        beta = tf.square(lower_bound(self.beta_r.value, np.sqrt(BETA_MIN + PEDESTAL))) - PEDESTAL
        gamma = tf.square(lower_bound(self.gamma_r.value, np.sqrt(PEDESTAL))) - PEDESTAL
        pool = tf.nn.bias_add(tf.nn.conv2d(tf.square(x), gamma[None, None], 1, "VALID"), beta)
        return x * (tf.sqrt(pool) if self.inverse else tf.math.rsqrt(pool))


class EntropyBits(Layer):
    """A logistic density a channel; gives the bits per pixel of a picture."""

    def build(self, shape):
        c = shape[-1]
        self.loc = self.add_weight(name="loc", shape=(c,), initializer="zeros")
        self.log_scale = self.add_weight(
            name="log_scale", shape=(c,), initializer=keras.initializers.Constant(-0.3)
        )

    def call(self, y):
        s = tf.exp(-tf.convert_to_tensor(self.log_scale))
        upper = tf.sigmoid((y + 0.5 - self.loc) * s)
        lower = tf.sigmoid((y - 0.5 - self.loc) * s)
        p = tf.maximum(upper - lower, LIKELIHOOD_MIN)
        return tf.reduce_sum(tf.math.log(p), axis=[1, 2, 3]) / (-np.log(2.0) * SIDE * SIDE)


class DepthToSpace(Layer):
    def call(self, x):
        return tf.nn.depth_to_space(x, 2)


def build():
    image = Input((SIDE, SIDE, 3), name="image")
    dither = Input((SIDE // 4, SIDE // 4, LATENT), name="dither")
    x = Conv2D(CH, 5, strides=2, padding="same", name="analysis_0")(image - 0.5)
    x = GDN(name="gdn_0")(x)
    y = Conv2D(
        LATENT,
        5,
        strides=2,
        padding="same",
        kernel_initializer=keras.initializers.VarianceScaling(6.0),
        name="analysis_1",
    )(x)
    y = y + dither
    bits = EntropyBits(name="bits")(y)
    x = Conv2DTranspose(CH, 5, strides=2, padding="same", name="synthesis_0")(y)
    x = GDN(inverse=True, name="igdn_0")(x)
    x = Conv2D(12, 3, padding="same", name="synthesis_1")(x)
    x = DepthToSpace(name="shuffle")(x)
    recon = keras.layers.Rescaling(1.0, offset=0.5, name="recon")(x)
    return keras.Model({"image": image, "dither": dither}, {"recon": recon, "bits": bits}, name="codec")


def distortion(y, p):
    return (
        LAMBDA * 255.0**2 * tf.reduce_mean(tf.math.squared_difference(tf.cast(y, p.dtype), p), axis=[1, 2, 3])
    )


def rate(_, bits):
    return bits
