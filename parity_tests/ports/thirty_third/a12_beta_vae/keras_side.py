"""beta-VAE with an auxiliary class head. The noise of the reparametrisation comes with the data,
so that runs repeat. Trained by its own train_step."""

import keras
import tensorflow as tf
from keras import layers, ops

LATENT, BETA, CLASS_WEIGHT = 6, 0.5, 2.0


class Patches(layers.Layer):
    def __init__(self, size, **kw):
        super().__init__(**kw)
        self.size = size

    def call(self, x):
        b, h, w, c = x.shape
        n = h // self.size
        x = ops.reshape(x, (-1, n, self.size, n, self.size, c))
        return ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, n * n, self.size * self.size * c))


class Reparametrise(layers.Layer):
    def call(self, inputs):
        mu, logvar, noise = inputs
        return mu + ops.exp(0.5 * logvar) * noise


class BetaVAE(keras.Model):
    def compute_terms(self, data, training):
        inputs, label, _ = keras.utils.unpack_x_y_sample_weight(data)
        out = self(inputs, training=training)
        image = inputs["image"] if isinstance(inputs, dict) else inputs[0]
        image = ops.cast(image, out["recon"].dtype)
        recon = ops.sum(ops.softplus(out["recon"]) - image * out["recon"], axis=(1, 2))
        kl = -0.5 * ops.sum(1.0 + out["logvar"] - ops.square(out["mu"]) - ops.exp(out["logvar"]), axis=1)
        ce = keras.losses.sparse_categorical_crossentropy(label, out["label"], from_logits=True)
        return ops.mean(recon), ops.mean(kl), ops.mean(ce)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            recon, kl, ce = self.compute_terms(data, training=True)
            loss = recon + BETA * kl + CLASS_WEIGHT * ce
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(grads, self.trainable_variables)
        return {"loss": loss, "recon": recon, "kl": kl, "ce": ce}


def build():
    image = keras.Input((16, 16), name="image")
    noise = keras.Input((LATENT,), name="noise")
    x = Patches(4)(layers.Reshape((16, 16, 1))(image))
    x = layers.Dense(12, activation="elu", name="patch")(x)
    x = layers.LayerNormalization(name="patch_norm")(x)
    x = layers.Dense(32, activation="elu", name="encoder")(layers.Flatten()(x))
    mu = layers.Dense(LATENT, name="mu")(x)
    logvar = layers.Dense(LATENT, name="logvar")(x)
    z = Reparametrise(name="z")([mu, logvar, noise])

    x = layers.Dense(4 * 4 * 8, activation="elu", name="decoder")(z)
    x = layers.Reshape((4, 4, 8))(x)
    x = layers.UpSampling2D(2)(x)
    x = layers.Conv2D(8, 3, padding="same", activation="elu", name="smooth")(x)
    x = layers.Conv2DTranspose(1, 4, strides=2, padding="same", name="paint")(x)
    recon = layers.Reshape((16, 16))(x)
    label = layers.Dense(3, name="classify")(mu)
    model = BetaVAE([image, noise], {"recon": recon, "mu": mu, "logvar": logvar, "label": label})
    model.compile(optimizer=keras.optimizers.Adam(2e-3))
    return model
