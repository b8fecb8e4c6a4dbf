"""Repeated counts of birds at sites: N-mixture model with neural abundance and detection.

The output holds, per site, the log of the expected abundance and the logit of
the detection of each visit. A visit that did not take place is counted -1.
"""

import keras
import tensorflow as tf
from keras import layers

MOST = 40


def build():
    site = keras.Input((7,), name="site")
    canopy = keras.Input((9, 9, 2), name="canopy")
    visit = keras.Input((4, 3), name="visit")
    observer = keras.Input((4,), dtype="int32", name="observer")

    c = layers.Conv2D(6, 3, activation="relu", name="canopy_conv")(canopy)
    c = layers.MaxPooling2D(2, name="canopy_pool")(c)
    c = layers.Flatten(name="canopy_flat")(c)
    c = layers.Dense(8, activation="selu", name="canopy_dense")(c)

    s = layers.Dense(12, activation="selu", name="site_dense")(site)
    habitat = layers.Concatenate(name="habitat")([s, c])
    log_abundance = layers.Dense(1, bias_initializer=keras.initializers.Constant(1.5), name="log_abundance")(
        habitat
    )

    o = layers.Embedding(9, 4, name="observer_embedding")(observer)
    h = layers.RepeatVector(4, name="habitat_again")(habitat)
    d = layers.Concatenate(name="detection_in")([visit, o, h])
    d = layers.TimeDistributed(layers.Dense(10, activation="tanh"), name="detection_dense")(d)
    d = layers.TimeDistributed(layers.Dense(1), name="detection")(d)
    d = layers.Flatten(name="detection_flat")(d)
    return keras.Model(
        {"site": site, "canopy": canopy, "visit": visit, "observer": observer},
        layers.Concatenate(name="parameters")([log_abundance, d]),
    )


def loss(targets, outputs):
    dtype = outputs.dtype
    counts = tf.cast(targets, dtype)[:, :, None]  # site, visit, 1
    seen = tf.cast(counts >= 0.0, dtype)
    counts = tf.maximum(counts, 0.0)
    n = tf.range(MOST + 1, dtype=tf.int32)
    n = tf.cast(n, dtype)  # possible abundances
    log_abundance = outputs[:, :1]
    prior = n * log_abundance - tf.exp(log_abundance) - tf.math.lgamma(n + 1.0)
    logit = outputs[:, 1:, None]
    left = tf.maximum(n - counts, 0.0)
    binomial = (
        tf.math.lgamma(n + 1.0)
        - tf.math.lgamma(counts + 1.0)
        - tf.math.lgamma(left + 1.0)
        + counts * tf.math.log_sigmoid(logit)
        + left * tf.math.log_sigmoid(-logit)
    )
    binomial = tf.where(n >= counts, binomial, tf.constant(-1e6, dtype))
    joint = prior + tf.reduce_sum(seen * binomial, axis=1)
    return -tf.reduce_logsumexp(joint, axis=-1)
