"""Basket warrants: value network fitted to payoffs and pathwise deltas.

Differential machine learning (Huge & Savine, 2020): the training step adds an
error of the network's input gradient to that of its value.
"""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

SPOT_MEAN = np.array([100.0, 82.0, 121.0, 64.0], dtype=np.float32)
SPOT_STD = np.array([18.0, 15.5, 26.0, 13.0], dtype=np.float32)
PAYOFF_MEAN, PAYOFF_STD = 9.3, 9.9
# 1 / root mean square of the pathwise deltas, one an underlying
DELTA_WEIGHT = np.array([3.9, 4.8, 3.9, 8.1], dtype=np.float32)
BALANCE = 0.6  # share of the differential part


class DifferentialModel(keras.Model):
    """Trains value and deltas together."""

    def train_step(self, data):
        spots, y = data
        payoff, deltas = y["payoff"], y["deltas"]
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                inner.watch(spots)
                value = self(spots, training=True)
            slopes = inner.gradient(value, spots)
            value_error = (value[:, 0] - payoff) / PAYOFF_STD
            slope_error = (slopes - deltas) * DELTA_WEIGHT
            value_part = tf.reduce_mean(tf.square(value_error))
            slope_part = tf.reduce_mean(tf.square(slope_error))
            loss = (1.0 - BALANCE) * value_part + BALANCE * slope_part
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {"loss": loss, "value": value_part, "slope": slope_part}


def build():
    spots = keras.Input((4,), name="spots")
    x = layers.Normalization(mean=SPOT_MEAN, variance=SPOT_STD**2, name="standardise")(spots)
    h = layers.Dense(32, activation="softplus", name="layer1")(x)
    for i in (2, 3):
        u = layers.Dense(32, activation="softplus", name=f"layer{i}")(h)
        h = layers.Average(name=f"mix{i}")([h, u])
    v = layers.Dense(1, name="value")(h)
    skip = layers.Dense(1, use_bias=False, name="forward_part")(x)
    v = layers.Add()([v, skip])
    price = layers.Rescaling(PAYOFF_STD, offset=PAYOFF_MEAN, name="price")(v)
    return DifferentialModel(spots, price, name="warrant_twin")
