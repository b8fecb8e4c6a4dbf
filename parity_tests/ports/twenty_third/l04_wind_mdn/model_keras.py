"""Mixture density network: distribution of a turbine's power given the weather."""

import math

import keras
from keras import layers, ops

N_FEATURES, N_COMPONENTS = 5, 4
MIN_SIGMA = 0.05


def build():
    weather = keras.Input((N_FEATURES,), name="weather")
    x = layers.Dense(24, activation="tanh", name="in")(weather)
    h = layers.Dropout(0.2, name="drop")(x)
    h = layers.Dense(24, activation="softplus", name="mid")(h)
    h = layers.LayerNormalization(epsilon=1e-4, name="norm")(h)
    x = layers.Add(name="residual")([x, h])
    x = layers.Dense(16, activation="tanh", name="top")(x)
    params = layers.Dense(3 * N_COMPONENTS, name="mixture")(x)
    return keras.Model(weather, params, name="wind_mdn")


def split_mixture(params):
    """-> log weights, means, standard deviations, each (N, components)."""
    logit, mean, raw = ops.split(params, 3, axis=-1)
    log_weight = logit - ops.logsumexp(logit, axis=-1, keepdims=True)
    return log_weight, mean, ops.softplus(raw) + MIN_SIGMA


def nll(y_true, y_pred):
    """Negative log likelihood of the mixture, one value per sample."""
    log_weight, mean, sigma = split_mixture(y_pred)
    z = (ops.reshape(y_true, (-1, 1)) - mean) / sigma
    log_density = -0.5 * ops.square(z) - ops.log(sigma) - 0.5 * math.log(2 * math.pi)
    return -ops.logsumexp(log_weight + log_density, axis=-1)


def expected_power(params):
    """Mean of the mixture, for the operators' display; (N, 1)."""
    log_weight, mean, _ = split_mixture(params)
    return ops.sum(ops.exp(log_weight) * mean, axis=-1, keepdims=True)
