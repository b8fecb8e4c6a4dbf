"""Claim counts of motor policies: zero-inflated Poisson with exposure."""

import numpy as np
import tensorflow as tf
from keras import Input, Model, initializers, layers, ops, optimizers

NUM_MEAN = np.array([44.0, 8.5, 13.2, 9.1], dtype="float32")  # driver age, car age, log price, log km
NUM_VAR = np.array([196.0, 30.0, 0.4, 0.5], dtype="float32")
AGE_KNOTS = np.float32([22, 26, 32, 45, 60, 75])
N_REGION, N_COVER = 12, 9


def age_basis(num):
    return ops.relu(num[:, :1] - AGE_KNOTS) / np.float32(20.0)


def gated(x, units, name):
    a = layers.Dense(units, name=name + "_value")(x)
    g = layers.Dense(units, activation="sigmoid", name=name + "_gate", bias_initializer="ones")(x)
    return layers.Multiply()([a, g])


def build():
    numeric = Input((4,), name="numeric")
    region = Input((), dtype="int32", name="region")
    covers = Input((3,), dtype="int32", name="covers")
    exposure = Input((1,), name="exposure")

    z = layers.Normalization(axis=-1, mean=NUM_MEAN, variance=NUM_VAR, name="standardise")(numeric)
    s = layers.Lambda(age_basis, name="age_basis")(numeric)
    r = layers.Embedding(N_REGION, 5, name="region_table")(region)
    c = layers.Embedding(N_COVER, 6, name="cover_table")(covers)
    c = layers.GlobalAveragePooling1D()(c)
    x = layers.concatenate([z, s, r, c])
    x = layers.Dense(32, activation="selu", kernel_initializer="lecun_normal", name="trunk")(x)
    x = layers.Dropout(0.1)(x)
    x = layers.add([x, gated(x, 32, "glu1")])
    x = layers.LayerNormalization(epsilon=1e-5, name="trunk_norm")(x)

    freq = layers.Dense(16, activation="softplus", name="freq_hidden")(x)
    freq = layers.Dense(1, bias_initializer=initializers.Constant(-1.0), name="log_rate")(freq)
    log_mu = freq + ops.log(exposure)
    zero = layers.Dense(12, activation="tanh", name="zero_hidden")(layers.concatenate([x, exposure]))
    zero = layers.Dense(1, name="zero_logit")(zero)
    return Model(
        {"numeric": numeric, "region": region, "covers": covers, "exposure": exposure},
        layers.concatenate([log_mu, zero], name="zip"),
    )


def zip_nll(y, out):
    y = tf.reshape(tf.cast(y, out.dtype), (-1,))
    log_mu, logit = out[:, 0], out[:, 1]
    mu = tf.exp(log_mu)
    pi = tf.sigmoid(logit)
    p0 = -tf.math.log(pi + (1.0 - pi) * tf.exp(-mu))
    pk = tf.nn.softplus(logit) + mu - y * log_mu + tf.math.lgamma(y + 1.0)
    return tf.where(tf.equal(y, 0.0), p0, pk)


def optimizer():
    schedule = optimizers.schedules.CosineDecay(0.02, decay_steps=60, alpha=0.1)
    return optimizers.SGD(schedule, momentum=0.9, nesterov=True)
