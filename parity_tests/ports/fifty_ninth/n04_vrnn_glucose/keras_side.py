"""Variational recurrent network on glucose sensor sequences, with an alarm read from its last state."""

import math

import keras
import tensorflow as tf
from keras import layers, ops

STEPS = 12
FEATURES = 3
LATENT = 4
STATE = 14
KL_WEIGHT = 0.6
ALARM_WEIGHT = 0.5


class Gaussian(layers.Layer):
    """A dense trunk with a head for the mean and one for the deviation."""

    def __init__(self, hidden, size, **kwargs):
        super().__init__(**kwargs)
        self.hidden = layers.Dense(hidden, activation="elu", name="hidden")
        self.mean = layers.Dense(size, name="mean")
        self.scale = layers.Dense(size, name="scale")

    def call(self, x):
        x = self.hidden(x)
        return self.mean(x), ops.softplus(self.scale(x)) + 0.01


class GlucoseVRNN(keras.Model):
    def __init__(self):
        super().__init__(name="glucose_vrnn")
        self.see_0 = layers.Dense(16, activation="elu", name="see_0")
        self.see_1 = layers.Dense(12, activation="elu", name="see_1")
        self.code = layers.Dense(10, activation="elu", name="code")
        self.prior = Gaussian(12, LATENT, name="prior")
        self.posterior = Gaussian(16, LATENT, name="posterior")
        self.emission = Gaussian(16, FEATURES, name="emission")
        self.cell = layers.GRUCell(STATE, name="cell")
        self.alarm_0 = layers.Dense(8, activation="elu", name="alarm_0")
        self.alarm_1 = layers.Dense(1, name="alarm_1")

    def unroll(self, inputs):
        series, noise = inputs["series"], inputs["noise"]
        length = ops.cast(inputs["length"], "int32")
        h = ops.zeros_like(series[:, 0, :1]) * ops.ones((1, STATE), dtype=series.dtype)
        total = ops.zeros_like(series[:, 0, 0])
        for t in range(STEPS):
            live = ops.cast(t < length, series.dtype)
            x = series[:, t]
            seen = self.see_1(self.see_0(x))
            mean_p, dev_p = self.prior(h)
            mean_q, dev_q = self.posterior(ops.concatenate([seen, h], axis=-1))
            z = self.code(mean_q + dev_q * noise[:, t])
            mean_x, dev_x = self.emission(ops.concatenate([z, h], axis=-1))

            nll = 0.5 * ops.square((x - mean_x) / dev_x) + ops.log(dev_x) + 0.5 * math.log(2.0 * math.pi)
            kl = (
                ops.log(dev_p)
                - ops.log(dev_q)
                + (ops.square(dev_q) + ops.square(mean_q - mean_p)) / (2.0 * ops.square(dev_p))
                - 0.5
            )
            total = total + live * (ops.sum(nll, axis=-1) + KL_WEIGHT * ops.sum(kl, axis=-1))

            new, _ = self.cell(ops.concatenate([seen, z], axis=-1), [h])
            h = live[:, None] * new + (1.0 - live[:, None]) * h
        bound = total / ops.cast(length, series.dtype)
        return bound, self.alarm_1(self.alarm_0(h))

    def call(self, inputs):
        return self.unroll(inputs)[1]

    def objective(self, inputs, alarm):
        bound, logit = self.unroll(inputs)
        alarm = ops.cast(alarm, logit.dtype)
        entropy = tf.nn.sigmoid_cross_entropy_with_logits(labels=alarm, logits=logit)
        return ops.mean(bound) + ALARM_WEIGHT * ops.mean(entropy)

    def train_step(self, data):
        inputs, alarm = data
        with tf.GradientTape() as tape:
            value = self.objective(inputs, alarm)
        self.optimizer.apply(tape.gradient(value, self.trainable_variables), self.trainable_variables)
        return {"loss": value}


def build():
    return GlucoseVRNN()
