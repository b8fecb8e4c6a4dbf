"""Sparse variational Gaussian process on learned features; Poisson counts of birds with exposure."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

COVARIATES = 7
FEATURES = 3
INDUCING = 18
SITES = 192  # of the survey
JITTER = 1e-4

ROWS, COLUMNS = np.tril_indices(INDUCING)


class SparseGP(layers.Layer):
    """Whitened: q(v) = N(m, S S'), u = chol(Kzz) v, S lower triangular. Gives mean and variance a row."""

    def build(self, shape):
        normal = keras.initializers.RandomNormal
        self.inducing = self.add_weight(
            shape=(INDUCING, shape[-1]), initializer=normal(stddev=0.7), name="inducing"
        )
        self.log_length = self.add_weight(shape=(shape[-1],), initializer="zeros", name="log_length")
        self.log_scale = self.add_weight(shape=(), initializer="zeros", name="log_scale")
        self.log_mixture = self.add_weight(
            shape=(), initializer=keras.initializers.Constant(0.5), name="log_mixture"
        )
        self.constant = self.add_weight(shape=(), initializer="zeros", name="constant")
        self.location = self.add_weight(shape=(INDUCING,), initializer=normal(stddev=0.3), name="location")
        self.packed = self.add_weight(shape=(len(ROWS),), initializer=normal(stddev=0.3), name="packed_root")

    def covariance(self, a, b):
        """Rational quadratic kernel."""
        length = ops.exp(self.log_length)
        gap = (a[:, None] - b[None]) / length
        alpha = ops.exp(self.log_mixture)
        return ops.exp(2.0 * self.log_scale) * ops.power(
            1.0 + ops.sum(ops.square(gap), -1) / (2.0 * alpha), -alpha
        )

    def root(self):
        lower = ops.scatter(np.stack([ROWS, COLUMNS], 1), self.packed, (INDUCING, INDUCING))
        diagonal = ops.diagonal(lower)
        return lower + ops.diag(ops.softplus(diagonal) - diagonal)

    def call(self, x):
        kzz = self.covariance(self.inducing, self.inducing)
        chol = ops.cholesky(kzz + JITTER * ops.eye(INDUCING, dtype=kzz.dtype))
        projected = ops.solve_triangular(chol, self.covariance(self.inducing, x), lower=True)
        mean = self.constant + ops.einsum("mb,m->b", projected, self.location)
        prior = ops.exp(2.0 * self.log_scale) - ops.sum(ops.square(projected), axis=0)
        posterior = ops.sum(ops.square(ops.matmul(ops.transpose(self.root()), projected)), axis=0)
        return ops.stack([mean, prior + posterior], axis=-1)

    def divergence(self):
        root = self.root()
        return 0.5 * (ops.sum(ops.square(root)) + ops.sum(ops.square(self.location)) - INDUCING) - ops.sum(
            ops.log(ops.diagonal(root))
        )


class Counts(keras.Model):
    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            moments = self(x, training=True)
            mean, variance = moments[:, 0], moments[:, 1]
            count = ops.reshape(ops.cast(y, mean.dtype), (-1,))
            expected = count * mean - ops.exp(mean + 0.5 * variance) - tf.math.lgamma(count + 1.0)
            loss = self.get_layer("gp").divergence() / SITES - ops.mean(expected)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


def build():
    covariates = keras.Input((COVARIATES,), name="covariates")
    log_hours = keras.Input((), name="log_hours")
    x = layers.Dense(32, activation="tanh", name="hidden_1")(covariates)
    x = layers.Dense(16, activation="tanh", name="hidden_2")(x)
    x = layers.Dense(FEATURES, use_bias=False, name="features")(x)
    moments = SparseGP(name="gp")(x)
    shift = ops.stack([log_hours, ops.zeros_like(log_hours)], axis=-1)
    return Counts(inputs={"covariates": covariates, "log_hours": log_hours}, outputs=moments + shift)
