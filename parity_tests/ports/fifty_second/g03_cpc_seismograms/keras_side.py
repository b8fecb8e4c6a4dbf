"""Contrastive predictive coding of three-component seismograms with a small classifier on top."""

import keras
import tensorflow as tf
from keras import layers

HORIZONS = (1, 2, 4, 8, 12)
WIDTH = 24
CONTEXT = 28
TEMPERATURE = 0.2
CLASS_WEIGHT = 0.3


class SeismicCPC(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.encoder = keras.Sequential(
            [
                layers.Conv1D(16, 8, strides=4),
                layers.GroupNormalization(4),
                layers.Activation("silu"),
                layers.Conv1D(WIDTH, 4, strides=2),
                layers.GroupNormalization(4),
                layers.Activation("silu"),
                layers.Conv1D(WIDTH, 1),
            ],
            name="encoder",
        )
        self.context = layers.GRU(CONTEXT, return_sequences=True, name="context")
        self.predictors = [layers.Dense(WIDTH, use_bias=False, name=f"ahead_{k}") for k in HORIZONS]
        self.classifier = layers.Dense(3, name="classifier")

    def call(self, trace, training=None):
        z = self.encoder(trace, training=training)
        c = self.context(z)
        return z, c, [p(c) for p in self.predictors], self.classifier(c[:, -1])

    def contrast(self, z, predictions):
        z = tf.math.l2_normalize(z, axis=-1)
        steps = tf.shape(z)[1]
        total = 0.0
        for k, p in zip(HORIZONS, predictions):
            p = tf.math.l2_normalize(p[:, :-k], axis=-1)
            logits = tf.matmul(p, z, transpose_b=True) / TEMPERATURE
            ahead = tf.broadcast_to(tf.range(k, steps), tf.shape(logits)[:2])
            total += tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(ahead, logits))
        return total / len(HORIZONS)

    def train_step(self, data):
        trace, y = data
        with tf.GradientTape() as tape:
            z, _, predictions, logits = self(trace, training=True)
            kind = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(y, tf.int32), logits)
            )
            loss = self.contrast(z, predictions) + CLASS_WEIGHT * kind
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


def build():
    model = SeismicCPC(name="cpc")
    model(tf.zeros([1, 192, 3]))
    return model
