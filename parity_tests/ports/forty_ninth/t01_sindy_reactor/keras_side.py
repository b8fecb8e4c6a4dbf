"""SINDy autoencoder of the reactor's 24 thermocouples: three latent coordinates whose
time derivative is a sparse combination of library terms."""

import keras
import tensorflow as tf
from keras import layers

LATENT = 3


def library(z):
    terms = [tf.ones_like(z[:, :1])]
    terms += [z[:, i : i + 1] for i in range(LATENT)]
    for i in range(LATENT):
        for j in range(i, LATENT):
            terms.append(z[:, i : i + 1] * z[:, j : j + 1])
    terms += [tf.sin(z[:, i : i + 1]) for i in range(LATENT)]
    return tf.concat(terms, axis=1)


class SindyAutoencoder(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.encoder = keras.Sequential(
            [
                layers.Dense(32, activation="sigmoid"),
                layers.Dense(12, activation="sigmoid"),
                layers.Dense(LATENT),
            ],
            name="encoder",
        )
        self.decoder = keras.Sequential(
            [
                layers.Dense(12, activation="sigmoid"),
                layers.Dense(32, activation="sigmoid"),
                layers.Dense(24),
            ],
            name="decoder",
        )
        self.xi = self.add_weight(
            name="xi", shape=(13, LATENT), initializer="ones", regularizer=keras.regularizers.L1(2e-4)
        )

    def call(self, x):
        return self.decoder(self.encoder(x))

    def train_step(self, data):
        x, dx, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            with tf.autodiff.ForwardAccumulator(x, dx) as forward:
                z = self.encoder(x, training=True)
            dz = forward.jvp(z)
            dz_hat = tf.matmul(library(z), self.xi)
            with tf.autodiff.ForwardAccumulator(z, dz_hat) as forward:
                x_hat = self.decoder(z, training=True)
            dx_hat = forward.jvp(x_hat)
            loss = tf.reduce_mean(tf.square(x - x_hat))
            loss += 0.5 * tf.reduce_mean(tf.square(dx - dx_hat))
            loss += 0.05 * tf.reduce_mean(tf.square(dz - dz_hat))
            loss += tf.add_n(self.losses)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


def build():
    model = SindyAutoencoder(name="sindy")
    model(tf.zeros((1, 24), dtype=keras.config.floatx()))
    return model
