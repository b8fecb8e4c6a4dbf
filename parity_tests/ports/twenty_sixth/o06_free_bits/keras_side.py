"""VAE on 8x8 binary glyphs; the noise of the reparametrisation is an input."""

import keras
from keras import layers, ops

PIXELS, LATENT = 64, 6
FREE_BITS = 0.08


def build():
    x = keras.Input((PIXELS,), name="x")
    eps = keras.Input((LATENT,), name="eps")
    h = layers.Dense(40, activation="swish", name="enc1")(x)
    h = layers.Dense(24, activation="swish", name="enc2")(h)
    mu, logvar = ops.split(layers.Dense(2 * LATENT, name="posterior")(h), 2, axis=-1)
    logvar = ops.clip(logvar, -6.0, 4.0)
    z = mu + ops.exp(0.5 * logvar) * eps
    d = layers.Dense(24, activation="swish", name="dec1")(z)
    d = layers.Dense(40, activation="swish", name="dec2")(d)
    logits = layers.Dense(PIXELS, name="pixels")(d)
    return keras.Model([x, eps], ops.concatenate([logits, mu, logvar], axis=-1), name="vae")


def elbo(y_true, y_pred):
    logits = y_pred[:, :PIXELS]
    mu = y_pred[:, PIXELS : PIXELS + LATENT]
    logvar = y_pred[:, PIXELS + LATENT :]
    bce = ops.maximum(logits, 0.0) - logits * y_true + ops.log1p(ops.exp(-ops.abs(logits)))
    rec = ops.mean(ops.sum(bce, axis=1))
    kl = 0.5 * (ops.square(mu) + ops.exp(logvar) - 1.0 - logvar)
    kl = ops.maximum(ops.mean(kl, axis=0), FREE_BITS)
    return rec + ops.sum(kl)
