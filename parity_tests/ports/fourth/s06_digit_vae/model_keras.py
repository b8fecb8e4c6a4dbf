import keras
from keras import layers, ops

LATENT = 6


class Sample(layers.Layer):
    def call(self, mean, log_var, noise):
        return mean + ops.exp(0.5 * log_var) * noise


def build():
    image = keras.Input((12, 12, 1), name="image")
    noise = keras.Input((LATENT,), name="noise")
    x = layers.Conv2D(12, 3, 2, padding="same", activation="softplus", name="enc1")(image)
    x = layers.Conv2D(20, 3, 2, padding="same", activation="softplus", name="enc2")(x)
    x = layers.GlobalAveragePooling2D(name="enc_pool")(x)
    mean = layers.Dense(LATENT, name="mean")(x)
    log_var = layers.Dense(LATENT, name="log_var")(x)
    z = Sample(name="sample")(mean, log_var, noise)
    x = layers.Dense(20, activation="softplus", name="dec_in")(z)
    x = layers.Reshape((1, 1, 20), name="dec_shape")(x)
    x = layers.Conv2DTranspose(16, 3, padding="valid", activation="softplus", name="dec1")(x)
    x = layers.Conv2DTranspose(12, 3, 2, padding="same", activation="softplus", name="dec2")(x)
    x = layers.Conv2DTranspose(1, 3, 2, padding="same", name="dec3")(x)
    recon = layers.Flatten(name="recon")(x)
    return keras.Model([image, noise], {"recon": recon, "mean": mean, "log_var": log_var})


def elbo(targets, outputs):
    """Negative evidence bound of each sample; the targets carry its prior."""
    pixels, logits = targets["recon"], outputs["recon"]
    recon = ops.sum(ops.softplus(logits) - pixels * logits, axis=-1)
    shift = ops.square(outputs["mean"] - targets["mean"])
    ratio = outputs["log_var"] - targets["log_var"]
    kl = 0.5 * ops.sum(ops.exp(ratio) + shift * ops.exp(-targets["log_var"]) - 1.0 - ratio, axis=-1)
    return recon + kl
