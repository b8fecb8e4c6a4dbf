"""Reflow oven: board temperatures to come, from zone settings and the last readings.

The loss is soft-DTW between the courses, plus the squared error of their slopes.
"""

import math

import keras
import tensorflow as tf
from keras import layers, ops

GAMMA = 0.3
WEIGHT = 0.7
AHEAD = 10


def build():
    zones = keras.Input((6,), name="zones")
    readings = keras.Input((14, 3), name="readings")
    x = layers.Conv1D(12, 3, strides=2, padding="same", activation="relu", name="conv")(readings)
    start = layers.Dense(20, activation="tanh", name="start")(zones)
    state = layers.GRU(20, name="encoder")(x, initial_state=start)
    z = layers.Dense(8, activation="relu", name="zone_dense")(zones)
    steps = layers.RepeatVector(AHEAD)(layers.Concatenate()([z, state]))
    h = layers.GRU(16, return_sequences=True, name="decoder")(steps)
    last = layers.Cropping1D((13, 0))(readings)
    base = layers.Dense(2, use_bias=False, name="carry")(last)
    return keras.Model([zones, readings], layers.Add()([layers.Dense(2, name="out")(h), base]))


def soft_dtw(cost):
    """By antidiagonals: entry i of diagonal d is the cell (i, d - i)."""
    n, m = cost.shape[1], cost.shape[2]
    big = 1e8
    batch = tf.shape(cost)[0]
    far = tf.fill([batch, n + 1], tf.constant(big, cost.dtype))
    before = tf.concat([tf.zeros([batch, 1], cost.dtype), far[:, 1:]], axis=1)  # diagonal 0
    now = far  # diagonal 1
    for d in range(2, n + m + 1):
        rows = [i for i in range(1, n + 1) if 1 <= d - i <= m]
        local = tf.stack([cost[:, i - 1, d - i - 1] for i in rows], axis=1)
        lo, hi = rows[0], rows[-1] + 1
        options = tf.stack([before[:, lo - 1 : hi - 1], now[:, lo - 1 : hi - 1], now[:, lo:hi]], axis=-1)
        new = local - GAMMA * tf.reduce_logsumexp(-options / GAMMA, axis=-1)
        new = tf.concat([far[:, :lo], new, far[:, hi:]], axis=1)
        before, now = now, new
    return now[:, n]


def loss(targets, outputs):
    targets = tf.cast(targets, outputs.dtype)
    cost = tf.reduce_sum(tf.square(outputs[:, :, None, :] - targets[:, None, :, :]), axis=-1)
    shape = soft_dtw(cost) / AHEAD
    slope = ops.mean(ops.square(ops.diff(outputs, axis=1) - ops.diff(targets, axis=1)), axis=(1, 2))
    return WEIGHT * shape + (1.0 - WEIGHT) * slope


class WarmCosine(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, peak=0.05, warm=8, total=60):
        self.peak, self.warm, self.total = peak, warm, total

    def __call__(self, step):
        step = ops.cast(step, keras.config.floatx())
        rise = (step + 1.0) / self.warm
        part = ops.clip((step - self.warm) / (self.total - self.warm), 0.0, 1.0)
        return self.peak * ops.where(step < self.warm, rise, 0.5 * (1.0 + ops.cos(math.pi * part)))

    def get_config(self):
        return {"peak": self.peak, "warm": self.warm, "total": self.total}


def optimizer():
    return keras.optimizers.SGD(WarmCosine(), global_clipnorm=2.0)
