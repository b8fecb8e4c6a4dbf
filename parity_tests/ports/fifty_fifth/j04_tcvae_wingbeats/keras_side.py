"""beta-TCVAE of wingbeat spectra, conditioned on the air temperature."""

import math

import keras
import tensorflow as tf
from keras import layers, ops

LATENT = 5
DATASET = 96
LOG_2PI = math.log(2.0 * math.pi)


def make_encoder():
    spectrum = keras.Input((32,), name="spectrum")
    temperature = keras.Input((1,), name="temperature")
    x = layers.Reshape((32, 1))(spectrum)
    for i, filters in enumerate((8, 12, 16)):
        x = layers.Conv1D(filters, 4, strides=2, padding="same", activation="elu", name=f"enc_conv{i}")(x)
    x = layers.Flatten()(x)
    x = layers.Concatenate()([x, temperature])
    x = layers.Dense(32, activation="elu", name="enc_fc")(x)
    mean = layers.Dense(LATENT, name="z_mean")(x)
    log_var = layers.Dense(LATENT, name="z_log_var")(x)
    return keras.Model([spectrum, temperature], [mean, log_var], name="encoder")


def make_decoder():
    z = keras.Input((LATENT,), name="z")
    temperature = keras.Input((1,), name="temperature")
    x = layers.Concatenate()([z, temperature])
    x = layers.Dense(32, activation="elu", name="dec_fc")(x)
    x = layers.Dense(4 * 16, activation="elu", name="dec_grid")(x)
    x = layers.Reshape((4, 16))(x)
    for i, filters in enumerate((12, 8)):
        x = layers.Conv1DTranspose(
            filters, 4, strides=2, padding="same", activation="elu", name=f"dec_up{i}"
        )(x)
    x = layers.Conv1DTranspose(1, 4, strides=2, padding="same", name="dec_out")(x)
    return keras.Model([z, temperature], layers.Reshape((32,))(x), name="decoder")


def gaussian_log_density(z, mean, log_var):
    return -0.5 * (LOG_2PI + log_var + ops.square(z - mean) * ops.exp(-log_var))


class TCVAE(keras.Model):
    def __init__(self, mi=1.0, tc=6.0, kl=0.8, **kwargs):
        super().__init__(**kwargs)
        self.mi, self.tc, self.kl = mi, tc, kl
        self.encoder = make_encoder()
        self.decoder = make_decoder()
        self.log_scale = self.add_weight(
            name="log_scale", shape=(32,), initializer=keras.initializers.Constant(-0.5)
        )

    def call(self, inputs, training=None):
        t = (inputs["temperature"] - 21.0) / 2.0
        mean, log_var = self.encoder([inputs["spectrum"], t], training=training)
        z = mean + ops.exp(0.5 * log_var) * inputs["noise"]
        return {"recon": self.decoder([z, t], training=training), "mean": mean, "log_var": log_var, "z": z}

    def elbo_terms(self, out, clean):
        scale = ops.clip(self.log_scale, -3.0, 1.0)
        log_px = ops.sum(
            -0.5 * (LOG_2PI + 2.0 * scale + ops.square((clean - out["recon"]) * ops.exp(-scale))), axis=1
        )

        z, mean, log_var = out["z"], out["mean"], out["log_var"]
        log_qz_x = ops.sum(gaussian_log_density(z, mean, log_var), axis=1)
        log_pz = ops.sum(-0.5 * (LOG_2PI + ops.square(z)), axis=1)

        # minibatch stratified sampling: row i is the sample, column j the posterior
        pairs = gaussian_log_density(z[:, None, :], mean[None, :, :], log_var[None, :, :])
        m = tf.shape(z)[0]
        batch = ops.cast(m, z.dtype)
        stratum = (DATASET - batch + 1.0) / (DATASET * (batch - 1.0))
        off = ops.ones_like(pairs[:, :, 0]) / (batch - 1.0)
        eye = tf.eye(m, dtype=z.dtype)
        nxt = tf.roll(eye, shift=1, axis=1)
        w = off * (1.0 - eye) * (1.0 - nxt) + eye / DATASET + nxt * stratum
        log_w = ops.log(w)

        log_qz = ops.logsumexp(log_w + ops.sum(pairs, axis=2), axis=1)
        log_prod = ops.sum(ops.logsumexp(log_w[:, :, None] + pairs, axis=1), axis=1)
        return log_px, log_qz_x - log_qz, log_qz - log_prod, log_prod - log_pz

    def train_step(self, data):
        inputs, clean, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            out = self(inputs, training=True)
            log_px, mi, tc, dim_kl = self.elbo_terms(out, clean)
            loss = ops.mean(-log_px + self.mi * mi + self.tc * tc + self.kl * dim_kl)
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return {"loss": loss, "tc": ops.mean(tc)}


def build():
    model = TCVAE()
    model({"spectrum": tf.zeros((2, 32)), "temperature": tf.zeros((2, 1)), "noise": tf.zeros((2, LATENT))})
    return model
