"""Embedding of Raman spectra trained with the supervised contrastive loss.

Every spectrum is seen twice per step: as measured, and with a small shift of
the wavenumber axis and another gain.
"""

import keras
import tensorflow as tf
from keras import layers, ops

N_BANDS, EMBED = 48, 10
TEMPERATURE = 0.2


def second_view(x):
    return 1.1 * tf.roll(x, shift=2, axis=-1) + 0.05


def supcon_loss(z, labels):
    """Khosla et al. (2020), the sum over positives outside of the logarithm.

    z: (M, D) unit vectors, labels: (M,). Other samples of the same class are
    the positives of an anchor; the anchor itself takes no part.
    """
    count = ops.shape(z)[0]
    itself = ops.eye(count, dtype=z.dtype)
    sim = ops.matmul(z, ops.transpose(z)) / TEMPERATURE
    log_total = ops.logsumexp(sim - 1e9 * itself, axis=1, keepdims=True)
    same = ops.cast(labels[:, None] == labels[None, :], z.dtype) - itself
    per_anchor = ops.sum(same * (sim - log_total), axis=1) / ops.sum(same, axis=1)
    return -ops.mean(per_anchor)


class UnitLength(layers.Layer):
    def call(self, x):
        return x / ops.sqrt(ops.sum(ops.square(x), axis=-1, keepdims=True) + 1e-9)


class ContrastiveModel(keras.Model):
    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        labels = tf.cast(tf.reshape(y, [-1]), tf.int32)
        labels = tf.concat([labels, labels], axis=0)
        with tf.GradientTape() as tape:
            z = tf.concat([self(x, training=True), self(second_view(x), training=True)], 0)
            loss = supcon_loss(z, labels)
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {"loss": loss}


def build():
    spectrum = keras.Input((N_BANDS,), name="spectrum")
    x = layers.LayerNormalization(center=False, scale=False, epsilon=1e-4, name="snv")(spectrum)
    x = layers.Dense(32, name="fc1")(x)
    x = layers.PReLU(alpha_initializer=keras.initializers.Constant(0.1), name="act1")(x)
    h = layers.Dense(32, activation="gelu", name="fc2")(x)
    x = layers.Add(name="skip")([x, h])
    x = layers.Dense(EMBED, name="project")(x)
    return ContrastiveModel(spectrum, UnitLength(name="unit")(x), name="raman_supcon")
