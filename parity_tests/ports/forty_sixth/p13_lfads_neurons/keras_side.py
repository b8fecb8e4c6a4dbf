"""LFADS: latent dynamics from spike counts; some neurons are held out of the input and must be predicted."""

import math

import keras
import tensorflow as tf
from keras import layers, ops

BINS, SEEN, NEURONS = 30, 20, 26
ENCODER, LATENT, CONTROL, GENERATOR, FACTORS = 16, 8, 3, 24, 6
PRIOR_VARIANCE = 0.1
KL_WEIGHT, SMOOTHNESS = 0.05, 0.1


@keras.saving.register_keras_serializable("lfads")
class NormedDense(layers.Layer):
    """A readout without bias whose kernel has rows of unit length."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, shape):
        self.kernel = self.add_weight(
            shape=(shape[-1], self.units), initializer="lecun_normal", name="kernel"
        )

    def call(self, x):
        return ops.matmul(x, ops.normalize(self.kernel))


@keras.saving.register_keras_serializable("lfads")
class LFADS(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.squash = layers.Dense(SEEN, activation="tanh", name="squash")
        self.encoder = layers.Bidirectional(
            layers.GRU(ENCODER, return_sequences=True, return_state=True), name="encoder"
        )
        self.posterior_mean = layers.Dense(LATENT, name="posterior_mean")
        self.posterior_logvar = layers.Dense(LATENT, name="posterior_logvar")
        self.control = layers.Dense(CONTROL, name="control")
        self.initial = layers.Dense(GENERATOR, activation="tanh", name="initial")
        self.generator = layers.GRU(GENERATOR, return_sequences=True, name="generator")
        self.factors = NormedDense(FACTORS, name="factors")
        self.log_rates = layers.Dense(NEURONS, name="log_rates")

    def call(self, inputs, training=False):
        spikes, eps = inputs["spikes"], inputs["eps"]
        x = self.squash(ops.log1p(spikes))
        sequence, forward, backward = self.encoder(x, training=training)
        last = ops.concatenate([forward, backward], -1)
        mean, logvar = self.posterior_mean(last), self.posterior_logvar(last)
        latent = mean + ops.exp(0.5 * logvar) * eps
        control = self.control(sequence)
        states = self.generator(control, initial_state=self.initial(latent), training=training)
        return self.log_rates(self.factors(states)), mean, logvar, control

    def objective(self, counts, outputs):
        log_rates, mean, logvar, control = outputs
        likelihood = tf.reduce_mean(tf.exp(log_rates) - counts * log_rates)
        kl = 0.5 * tf.reduce_sum(
            math.log(PRIOR_VARIANCE) - logvar + (tf.exp(logvar) + tf.square(mean)) / PRIOR_VARIANCE - 1.0,
            axis=-1,
        )
        jumps = tf.reduce_mean(tf.square(control[:, 1:] - control[:, :-1]))
        return likelihood + KL_WEIGHT * tf.reduce_mean(kl) / LATENT + SMOOTHNESS * jumps

    def train_step(self, data):
        inputs, counts, _ = keras.utils.unpack_x_y_sample_weight(data)
        if not isinstance(inputs, dict):
            inputs = dict(zip(("spikes", "eps"), inputs))
        with tf.GradientTape() as tape:
            loss = self.objective(tf.cast(counts, self.compute_dtype), self(inputs, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


def build():
    model = LFADS()
    model({"spikes": ops.zeros((1, BINS, SEEN)), "eps": ops.zeros((1, LATENT))})
    return model
