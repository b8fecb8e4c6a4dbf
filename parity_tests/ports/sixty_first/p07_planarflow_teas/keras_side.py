import math

import keras
import tensorflow as tf
from keras import layers

LATENT = 4
CHANNELS = 36
BETA = 0.5
LOG_2PI = math.log(2.0 * math.pi)


def log_normal(z, mean, log_var):
    return -0.5 * tf.reduce_sum(LOG_2PI + log_var + tf.square(z - mean) * tf.exp(-log_var), axis=-1)


class PlanarFlow(layers.Layer):
    def build(self, input_shape):
        size = (input_shape[-1],)
        init = keras.initializers.RandomNormal(stddev=0.5)
        self.direction = self.add_weight(shape=size, initializer=init, name="direction")
        self.normal = self.add_weight(shape=size, initializer=init, name="normal")
        self.offset = self.add_weight(shape=(1,), initializer="zeros", name="offset")

    def call(self, z):
        inner = tf.reduce_sum(self.direction * self.normal)
        lift = tf.math.softplus(inner) - 1.0 - inner
        u = self.direction + lift * self.normal / tf.reduce_sum(tf.square(self.normal))
        act = tf.tanh(tf.linalg.matvec(z, self.normal) + self.offset)
        slope = 1.0 - tf.square(act)
        log_det = tf.math.log(1.0 + slope * tf.reduce_sum(u * self.normal))
        return z + act[:, None] * u, log_det


class TeaVAE(keras.Model):
    def __init__(self, flows=4, **kwargs):
        super().__init__(**kwargs)
        self.encoder = [
            layers.Dense(28, activation="tanh", name="enc_1"),
            layers.Dense(20, activation="tanh", name="enc_2"),
        ]
        self.to_mean = layers.Dense(LATENT, name="to_mean")
        self.to_log_var = layers.Dense(LATENT, name="to_log_var")
        self.flows = [PlanarFlow(name=f"flow_{i}") for i in range(flows)]
        self.decoder = [
            layers.Dense(20, activation="tanh", name="dec_1"),
            layers.Dense(28, activation="tanh", name="dec_2"),
        ]
        self.to_spectrum = layers.Dense(CHANNELS, name="to_spectrum")
        self.log_noise = self.add_weight(
            shape=(CHANNELS,), initializer=keras.initializers.Constant(-1.0), name="log_noise"
        )
        self.loss_tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.loss_tracker]

    def infer(self, field, noise):
        h = field
        for layer in self.encoder:
            h = layer(h)
        mean, log_var = self.to_mean(h), self.to_log_var(h)
        z0 = mean + tf.exp(0.5 * log_var) * tf.cast(noise, mean.dtype)
        log_q = log_normal(z0, mean, log_var)
        z = z0
        for flow in self.flows:
            z, log_det = flow(z)
            log_q -= log_det
        return z, log_q

    def generate(self, z):
        for layer in self.decoder:
            z = layer(z)
        return self.to_spectrum(z)

    def call(self, inputs):
        z, _ = self.infer(inputs["field"], inputs["noise"])
        return self.generate(z)

    def train_step(self, data):
        x, lab = data
        with tf.GradientTape() as tape:
            z, log_q = self.infer(x["field"], x["noise"])
            spectrum = self.generate(z)
            fit = log_normal(tf.cast(lab, spectrum.dtype), spectrum, 2.0 * self.log_noise)
            divergence = log_q - log_normal(z, tf.zeros_like(z), tf.zeros_like(z))
            loss = tf.reduce_mean(BETA * divergence - fit) / CHANNELS
        self.optimizer.apply_gradients(
            zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        )
        self.loss_tracker.update_state(loss)
        return {"loss": loss}


def build():
    return TeaVAE(name="tea_vae")
