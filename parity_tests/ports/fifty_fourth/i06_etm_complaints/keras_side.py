"""Embedded topic model with a Dirichlet-like prior, on complaints to a water company.

`noise` is drawn beforehand so that runs can be repeated."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

WORDS, TOPICS, EMBED, HIDDEN = 160, 8, 16, 40
CONCENTRATION = 0.2
PRIOR_VAR = (1.0 - 2.0 / TOPICS) / CONCENTRATION + 1.0 / (TOPICS * CONCENTRATION)


class Decoder(layers.Layer):
    def build(self, input_shape):
        self.rho = self.add_weight(shape=(WORDS, EMBED), initializer="glorot_uniform", name="rho")
        self.alpha = self.add_weight(shape=(TOPICS, EMBED), initializer="glorot_uniform", name="alpha")

    def call(self, theta):
        beta = ops.softmax(ops.matmul(self.alpha, ops.transpose(self.rho)), axis=-1)
        return ops.log(ops.matmul(theta, beta) + 1e-6)


class TopicModel(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.hidden = [layers.Dense(HIDDEN, activation="softplus", name=f"hidden_{i}") for i in range(2)]
        self.mean = layers.Dense(TOPICS, use_bias=False, name="mean")
        self.log_var = layers.Dense(TOPICS, use_bias=False, name="log_var")
        self.mean_norm = layers.BatchNormalization(scale=False, momentum=0.9, epsilon=1e-3, name="mean_norm")
        self.var_norm = layers.BatchNormalization(scale=False, momentum=0.9, epsilon=1e-3, name="var_norm")
        self.decoder = Decoder(name="decoder")

    def encode(self, counts, training=None):
        x = ops.log1p(counts)
        for layer in self.hidden:
            x = layer(x)
        return (
            self.mean_norm(self.mean(x), training=training),
            self.var_norm(self.log_var(x), training=training),
        )

    def call(self, inputs, training=None):
        mean, log_var = self.encode(inputs["counts"], training=training)
        z = mean + ops.exp(0.5 * log_var) * inputs["noise"]
        return self.decoder(ops.softmax(z)), mean, log_var

    def train_step(self, data):
        x, length = data
        with tf.GradientTape() as tape:
            log_p, mean, log_var = self(x, training=True)
            nll = -ops.sum(x["counts"] * log_p, axis=-1)
            kl = 0.5 * ops.sum(
                (ops.exp(log_var) + ops.square(mean)) / PRIOR_VAR - 1.0 - log_var + np.log(PRIOR_VAR), axis=-1
            )
            # long letters count no more than short ones
            loss = ops.mean((nll + kl) / length)
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return {"loss": loss}


def optimizer():
    rate = keras.optimizers.schedules.ExponentialDecay(4e-3, decay_steps=8, decay_rate=0.8, staircase=True)
    return keras.optimizers.Adam(rate, beta_1=0.95, beta_2=0.99, epsilon=1e-6, global_clipnorm=0.05)


def build():
    model = TopicModel(name="topics")
    model({"counts": np.ones((2, WORDS), "float32"), "noise": np.zeros((2, TOPICS), "float32")})
    return model
