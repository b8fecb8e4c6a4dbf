"""Importance-weighted autoencoder of gamma-ray spectra: two stochastic layers, Poisson counts.

The noise of the samples comes with the data, so that runs can be repeated.
"""

import math

import keras
import tensorflow as tf
from keras import layers, ops

BINS, SAMPLES, LOW, TOP = 64, 5, 8, 4


def _named(group, names):
    return [group[n] for n in names] if isinstance(group, dict) else list(group)


def gaussian_log_prob(x, mean, log_std):
    z = (x - mean) * ops.exp(-log_std)
    return ops.sum(-0.5 * z * z - log_std - 0.5 * math.log(2 * math.pi), axis=-1)


class GaussianHead(layers.Layer):
    """Mean and bounded log standard deviation from two dense layers."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.mean = layers.Dense(units, name="mean")
        self.log_std = layers.Dense(units, name="log_std")

    def build(self, shape):
        self.mean.build(shape)
        self.log_std.build(shape)
        self.built = True

    def call(self, x):
        return self.mean(x), 3.0 * ops.tanh(self.log_std(x) / 3.0)


def spectrum_encoder():
    return keras.Sequential(
        [
            keras.Input((BINS,)),
            layers.Reshape((BINS, 1)),
            layers.Conv1D(12, 5, strides=2, padding="same", activation="elu", name="conv1"),
            layers.Conv1D(16, 5, strides=2, padding="same", activation="elu", name="conv2"),
            layers.Flatten(),
            layers.Dense(32, activation="elu", name="dense"),
        ],
        name="encoder",
    )


def spectrum_decoder():
    return keras.Sequential(
        [
            keras.Input((LOW,)),
            layers.Dense(16 * 12, activation="elu", name="dense"),
            layers.Reshape((16, 12)),
            layers.Conv1DTranspose(12, 4, strides=2, padding="same", activation="elu", name="up1"),
            layers.Conv1DTranspose(1, 4, strides=2, padding="same", activation="softplus", name="up2"),
            layers.Flatten(),
        ],
        name="decoder",
    )


class SpectrumIWAE(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.encoder = spectrum_encoder()
        self.low_posterior = GaussianHead(LOW, name="low_posterior")
        self.top_hidden = layers.Dense(24, activation="elu", name="top_hidden")
        self.top_posterior = GaussianHead(TOP, name="top_posterior")
        self.prior_hidden = layers.Dense(24, activation="elu", name="prior_hidden")
        self.low_prior = GaussianHead(LOW, name="low_prior")
        self.decoder = spectrum_decoder()
        self.low_posterior.build((None, 32))
        self.top_hidden.build((None, None, LOW))
        self.top_posterior.build((None, None, 24))
        self.prior_hidden.build((None, None, TOP))
        self.low_prior.build((None, None, 24))
        self.built = True

    def sample(self, inputs):
        eps_low, eps_top, live_time, spectrum = _named(
            inputs, ("eps_low", "eps_top", "live_time", "spectrum")
        )
        mean, log_std = self.low_posterior(self.encoder(spectrum))
        mean, log_std = mean[:, None], log_std[:, None]
        low = mean + ops.exp(log_std) * eps_low
        log_q = gaussian_log_prob(low, mean, log_std)
        mean, log_std = self.top_posterior(self.top_hidden(low))
        top = mean + ops.exp(log_std) * eps_top
        log_q = log_q + gaussian_log_prob(top, mean, log_std)
        log_p = gaussian_log_prob(top, ops.zeros_like(top), ops.zeros_like(top))
        log_p = log_p + gaussian_log_prob(low, *self.low_prior(self.prior_hidden(top)))
        shape = self.decoder(ops.reshape(low, (-1, LOW)))
        rate = ops.reshape(shape, (-1, SAMPLES, BINS)) * live_time[:, None] + 1e-3
        return rate, log_p - log_q

    def call(self, inputs):
        return ops.mean(self.sample(inputs)[0], axis=1)

    def bound(self, inputs, counts):
        rate, log_ratio = self.sample(inputs)
        n = counts[:, None]
        log_likelihood = ops.sum(n * ops.log(rate) - rate - tf.math.lgamma(n + 1.0), axis=-1)
        return ops.logsumexp(log_likelihood + log_ratio, axis=1) - math.log(SAMPLES)

    def train_step(self, data):
        inputs, counts = data[0], data[1]
        with tf.GradientTape() as tape:
            loss = -ops.mean(self.bound(inputs, counts))
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(grads, self.trainable_variables)
        return {"loss": loss}


def build():
    return SpectrumIWAE(name="spectrum_iwae")
