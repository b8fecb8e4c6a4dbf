"""Where a protein binds to DNA (BPNet): the profile of reads along both strands, and how many there are."""

import keras
import tensorflow as tf
from keras import layers, ops


def build():
    dna = keras.Input((60, 4), name="dna")
    x = layers.Conv1D(8, 7, activation="relu", name="motifs")(dna)
    for i, dilation in enumerate((1, 2, 4)):
        y = layers.Conv1D(8, 3, dilation_rate=dilation, activation="relu", name=f"dilated{i}")(x)
        x = layers.Cropping1D(dilation)(x) + y
    profile = layers.Conv1D(2, 17, name="profile")(x)
    # The count head follows the features; it does not shape them.
    pooled = layers.GlobalAveragePooling1D()(ops.stop_gradient(x))
    count = layers.Dense(2, name="count")(pooled)
    return keras.Model(dna, {"profile": profile, "count": count})


def profile_loss(reads, logits):
    """Minus the multinomial log-likelihood of the reads of each strand along the positions."""
    log_p = ops.log_softmax(logits, axis=1)
    total = ops.sum(reads, axis=1)
    ways = tf.math.lgamma(total + 1) - ops.sum(tf.math.lgamma(reads + 1), axis=1)
    return ops.mean(-ways - ops.sum(reads * log_p, axis=1), axis=-1)
