"""Deep count autoencoder: expression of genes in single cells, zero-inflated negative binomial."""

import keras
import tensorflow as tf
from keras import layers, ops


class SizeFactors(layers.Layer):
    """Counts of a cell in relation to those of a usual cell, which is followed during training."""

    def __init__(self, momentum=0.8, **kwargs):
        super().__init__(**kwargs)
        self.momentum = momentum
        self.usual = self.add_weight(
            shape=(), initializer=keras.initializers.Constant(60.0), trainable=False, name="usual"
        )

    def call(self, counts, training=False):
        total = ops.sum(counts, axis=-1, keepdims=True)
        if training:
            self.usual.assign(self.momentum * self.usual + (1 - self.momentum) * ops.mean(total))
        size = total / self.usual
        return size, ops.log1p(counts / size)


class CountAutoencoder(keras.Model):
    def __init__(self, genes=40):
        super().__init__()
        self.size_factors = SizeFactors(name="size_factors")
        self.encoder = layers.Dense(24, activation="relu", name="encoder")
        self.code = layers.Dense(8, activation="tanh", name="code")
        self.decoder = layers.Dense(24, activation="relu", name="decoder")
        self.mean = layers.Dense(genes, name="mean")
        self.dispersion = layers.Dense(genes, activation="softplus", name="dispersion")
        self.dropped = layers.Dense(genes, activation="sigmoid", name="dropped")

    def call(self, counts, training=False):
        size, x = self.size_factors(counts, training=training)
        x = self.decoder(self.code(self.encoder(x)))
        mean = size * ops.exp(ops.clip(self.mean(x), -8, 8))
        return ops.concatenate([mean, self.dispersion(x) + 1e-3, self.dropped(x)], axis=-1)


def build():
    return CountAutoencoder()


def zinb(counts, outputs):
    mean, theta, dropped = tf.split(outputs, 3, axis=-1)
    eps = 1e-8
    log_ratio = tf.math.log(theta + eps) - tf.math.log(theta + mean + eps)
    nb = (
        tf.math.lgamma(counts + theta)
        - tf.math.lgamma(theta)
        - tf.math.lgamma(counts + 1)
        + theta * log_ratio
        + counts * (tf.math.log(mean + eps) - tf.math.log(theta + mean + eps))
    )
    zero = -tf.math.log(dropped + (1 - dropped) * tf.exp(theta * log_ratio) + eps)
    some = -nb - tf.math.log(1 - dropped + eps)
    return tf.reduce_mean(tf.where(counts < 0.5, zero, some), axis=-1)
