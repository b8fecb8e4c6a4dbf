import math

import keras
from keras import layers, ops

MIX, DIM = 3, 2


def build():
    seq = keras.Input((15, 3), name="x")
    h = layers.GRU(14, return_sequences=True)(seq)
    h = layers.GRU(10)(h)
    logits = layers.Dense(MIX, name="mixture_logits")(h)
    mu = layers.Dense(MIX * DIM, name="mixture_mu")(h)
    raw = layers.Dense(MIX * DIM, activation="softplus", name="mixture_sigma")(h)
    return keras.Model(seq, layers.Concatenate()([logits, mu, raw]))


def loss(y_true, y_pred):
    logits, mu, sigma = y_pred[:, :MIX], y_pred[:, MIX : MIX + MIX * DIM], y_pred[:, MIX + MIX * DIM :]
    mu = ops.reshape(mu, (-1, MIX, DIM))
    sigma = ops.reshape(sigma, (-1, MIX, DIM)) + 1e-2
    z = (y_true[:, None, :] - mu) / sigma
    comp = -0.5 * ops.sum(ops.square(z), -1) - ops.sum(ops.log(sigma), -1) - 0.5 * DIM * math.log(2 * math.pi)
    return -ops.mean(ops.logsumexp(ops.log_softmax(logits, -1) + comp, axis=-1))
