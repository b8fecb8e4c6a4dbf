"""Crop yields with their uncertainty, by deep evidential regression (Amini et al. 2020)."""

import math

import keras
import tensorflow as tf
from keras import layers, ops


class NormalGamma(layers.Layer):
    """gamma, nu, alpha, beta of a normal-inverse-gamma distribution, in the last axis."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = layers.Dense(4)

    def call(self, x):
        gamma, nu, alpha, beta = ops.split(self.dense(x), 4, axis=-1)
        return ops.concatenate([gamma, ops.softplus(nu), ops.softplus(alpha) + 1, ops.softplus(beta)], -1)


def residual(x, width, rate):
    y = layers.LayerNormalization(epsilon=1e-6)(x)
    y = layers.Dense(2 * width, activation="elu")(y)
    y = layers.Dropout(rate)(y)
    return layers.Add()([x, layers.Dense(width)(y)])


def build():
    weather = keras.Input((4,), name="weather")
    soil = keras.Input((), dtype="int32", name="soil")
    scaled = layers.Normalization(mean=[15.0, 60.0, 60.0, 1.25], variance=[16.0, 1600.0, 64.0, 0.25])(weather)
    x = layers.Concatenate()([scaled, layers.Embedding(6, 4)(soil)])
    x = layers.Dense(16, activation="tanh")(x)
    x = residual(residual(x, 16, 0.1), 16, 0.1)
    return keras.Model([weather, soil], NormalGamma()(x))


def evidential(y_true, evidence):
    """Negative log-likelihood of Student's t, and a penalty of evidence where the error is large; one value a field."""
    gamma, nu, alpha, beta = tf.unstack(evidence, axis=-1)
    y = tf.reshape(tf.cast(y_true, evidence.dtype), tf.shape(gamma))
    omega = 2 * beta * (1 + nu)
    likelihood = (
        0.5 * tf.math.log(math.pi / nu)
        - alpha * tf.math.log(omega)
        + (alpha + 0.5) * tf.math.log(tf.square(y - gamma) * nu + omega)
        + tf.math.lgamma(alpha)
        - tf.math.lgamma(alpha + 0.5)
    )
    return likelihood + 0.05 * tf.abs(y - gamma) * (2 * nu + alpha)
