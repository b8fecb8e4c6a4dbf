"""A linear model of a pendulum in learned coordinates (Koopman autoencoder).

While training, each step is first pulled to the encoded observation, less and less with the number of passes.
"""

import keras
import tensorflow as tf
from keras import layers, ops


class Pull(layers.Layer):
    """1 in the first pass, falling to 0 over `passes` of them; 0 in inference."""

    def __init__(self, passes=16.0, **kwargs):
        super().__init__(**kwargs)
        self.passes = passes
        self.count = self.add_weight(
            shape=(), initializer="zeros", trainable=False, aggregation="only_first_replica", name="count"
        )

    def call(self, training=False):
        if not training:
            return ops.zeros_like(self.count)
        share = ops.maximum(1 - self.count / self.passes, 0)
        self.count.assign_add(1)
        return share


class Koopman(keras.Model):
    def __init__(self, state=3, latent=5, hidden=12, discount=0.875, latent_weight=0.5):
        super().__init__()
        self.discount, self.latent_weight = discount, latent_weight
        self.encoder = keras.Sequential(
            [layers.Dense(hidden, activation="tanh"), layers.Dense(latent)], name="encoder"
        )
        self.transition = layers.Dense(
            latent,
            kernel_initializer="identity",
            kernel_regularizer=keras.regularizers.L2(1 / 128),
            name="transition",
        )
        self.decoder = keras.Sequential(
            [layers.Dense(hidden, activation="tanh"), layers.Dense(state)], name="decoder"
        )
        self.pull = Pull(name="pull")

    def roll(self, codes, share):
        z, latents = codes[:, 0], []
        for t in range(1, codes.shape[1]):
            z = self.transition(z + share * (codes[:, t - 1] - z))
            latents.append(z)
        return ops.stack(latents, axis=1)

    def call(self, path, training=False):
        return self.decoder(self.roll(self.encoder(path), self.pull(training=training)))

    @property
    def metrics(self):
        return []  # train_step reports its loss itself

    def train_step(self, path):
        with tf.GradientTape() as tape:
            codes = self.encoder(path)
            latents = self.roll(codes, self.pull(training=True))
            following = path[:, 1:]
            weights = self.discount ** ops.arange(latents.shape[1], dtype=path.dtype)
            weights = weights / ops.sum(weights)
            prediction = ops.mean(ops.square(self.decoder(latents) - following), axis=(0, 2))
            linear = ops.mean(ops.square(latents - ops.stop_gradient(codes[:, 1:])), axis=(0, 2))
            loss = ops.mean(ops.square(self.decoder(codes) - path))
            loss = loss + ops.sum(weights * (prediction + self.latent_weight * linear))
            loss = loss + sum(self.losses)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


def build():
    return Koopman()
