"""Activities from accelerometers of two makes; features that do not tell the make (DANN)."""

import keras
import tensorflow as tf
from keras import layers, ops


@tf.custom_gradient
def reverse(x):
    def grad(upstream):
        return -0.3 * upstream

    return tf.identity(x), grad


class GradientReversal(layers.Layer):
    def call(self, x):
        return reverse(x)


def build():
    signal = keras.Input((24, 3), name="signal")
    x = layers.Conv1D(8, 5, strides=2, padding="same", name="conv1")(signal)
    x = layers.LayerNormalization(name="norm1")(x)
    x = layers.Activation("silu")(x)
    x = layers.Conv1D(12, 4, padding="same", name="conv2")(x)
    x = layers.LayerNormalization(name="norm2")(x)
    x = layers.Activation("silu")(x)
    x = layers.GlobalAveragePooling1D()(x)
    label = layers.Dense(5, name="label")(x)
    d = GradientReversal()(x)
    d = layers.Dense(8, activation="tanh", name="domain_hidden")(d)
    domain = layers.Dense(1, name="domain")(d)
    return keras.Model(signal, {"label": label, "domain": domain})


def loss(targets, outputs):
    """Labels are known of the first make (0) alone."""
    domain = ops.cast(ops.reshape(targets["domain"], (-1,)), outputs["domain"].dtype)
    label = ops.one_hot(ops.reshape(targets["label"], (-1,)), 5, dtype=outputs["label"].dtype)
    labelled = -ops.sum(label * ops.log_softmax(outputs["label"], axis=-1), axis=-1)
    logit = outputs["domain"][:, 0]
    make = ops.softplus(logit) - domain * logit
    return (1 - domain) * labelled + make
