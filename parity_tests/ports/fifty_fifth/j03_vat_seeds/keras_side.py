"""Seed varieties from near infra-red spectra, half of them unlabelled: virtual adversarial training."""

import keras
import tensorflow as tf
from keras import layers


class SpectralBlock(layers.Layer):
    def __init__(self, filters, kernel, strides=1, **kwargs):
        super().__init__(**kwargs)
        self.conv = layers.Conv1D(filters, kernel, strides=strides, padding="valid", name="conv")
        self.norm = layers.GroupNormalization(groups=4, epsilon=1e-5, name="norm")
        self.gate = layers.Conv1D(filters, 1, name="gate")

    def call(self, x):
        x = self.norm(self.conv(x))
        return tf.nn.softplus(x) * tf.nn.sigmoid(self.gate(x))


class SeedVAT(keras.Model):
    def __init__(self, classes=4, xi=0.05, radius=0.3, power=2, alpha=1.0, entropy=0.2, **kwargs):
        super().__init__(**kwargs)
        self.xi, self.radius, self.power = xi, radius, power
        self.alpha, self.entropy = alpha, entropy
        self.blocks = [
            SpectralBlock(12, 7, 2, name="block_a"),
            SpectralBlock(16, 5, 2, name="block_b"),
            SpectralBlock(16, 3, name="block_c"),
        ]
        self.hidden = layers.Dense(24, activation="tanh", name="hidden")
        self.scores = layers.Dense(classes, name="scores")
        self.loss_tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.loss_tracker]

    def logits(self, spectrum):
        # standard normal variate of each spectrum
        mean = tf.reduce_mean(spectrum, axis=1, keepdims=True)
        std = tf.math.reduce_std(spectrum, axis=1, keepdims=True)
        x = tf.expand_dims((spectrum - mean) / (std + 1e-3), -1)
        for block in self.blocks:
            x = block(x)
        x = tf.concat([tf.reduce_mean(x, axis=1), tf.reduce_max(x, axis=1)], axis=-1)
        return self.scores(self.hidden(x))

    def call(self, inputs, training=None):
        if isinstance(inputs, dict):
            inputs = inputs["spectrum"]
        return self.logits(inputs)

    @staticmethod
    def divergence(p_logits, q_logits):
        p = tf.nn.softmax(p_logits)
        return tf.reduce_sum(p * (tf.nn.log_softmax(p_logits) - tf.nn.log_softmax(q_logits)), axis=-1)

    def perturbation(self, x, clean, direction):
        d = direction
        for _ in range(self.power):
            d = self.xi * tf.math.l2_normalize(d, axis=-1)
            with tf.GradientTape() as tape:
                tape.watch(d)
                kl = tf.reduce_sum(self.divergence(clean, self.logits(x + d)))
            d = tf.stop_gradient(tape.gradient(kl, d))
        return self.radius * d / tf.norm(d, axis=-1, keepdims=True)

    def train_step(self, data):
        inputs, variety, _ = keras.utils.unpack_x_y_sample_weight(data)
        x, direction = inputs["spectrum"], inputs["direction"]
        known = tf.cast(variety >= 0, x.dtype)
        with tf.GradientTape() as tape:
            logits = self.logits(x)
            ce = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(variety, 0), logits)
            supervised = tf.reduce_sum(ce * known) / tf.maximum(tf.reduce_sum(known), 1.0)

            clean = tf.stop_gradient(logits)
            r = self.perturbation(x, clean, direction)
            smoothness = tf.reduce_mean(self.divergence(clean, self.logits(x + r)))

            plogp = tf.nn.softmax(logits) * tf.nn.log_softmax(logits)
            entropy = -tf.reduce_mean(tf.reduce_sum(plogp, axis=-1))
            loss = supervised + self.alpha * smoothness + self.entropy * entropy
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}


def build():
    model = SeedVAT()
    model(tf.zeros((1, 48)))
    return model
