"""Autoregressive forecast of counts (DeepAR): a negative binomial for every day, given the day before."""

import keras
import tensorflow as tf
from keras import layers, ops

ITEMS, DAYS, HISTORY = 12, 16, 10


class ScaleByHistory(layers.Layer):
    """1 + the mean demand of the conditioning days."""

    def __init__(self, history=HISTORY, **kwargs):
        super().__init__(**kwargs)
        self.history = history

    def call(self, demand):
        return 1 + ops.mean(demand[:, : self.history], axis=1, keepdims=True)

    def compute_output_shape(self, shape):
        return (shape[0], 1)


def build():
    item = keras.Input((), dtype="int32", name="item")
    demand = keras.Input((DAYS,), name="demand")
    calendar = keras.Input((DAYS, 2), name="calendar")

    scale = ScaleByHistory(name="scale")(demand)
    previous = ops.pad(demand[:, :-1], [[0, 0], [1, 0]]) / scale
    static = layers.Embedding(ITEMS, 4, name="items")(item)
    static = layers.RepeatVector(DAYS)(layers.Concatenate()([static, ops.log(scale)]))
    x = layers.Concatenate()([ops.expand_dims(previous, -1), calendar, static])
    x = layers.LSTM(12, return_sequences=True, name="lstm")(x)
    mean = layers.Dense(1, activation="softplus", name="mean")(x)[..., 0] * scale
    shape = layers.Dense(1, activation="softplus", name="shape")(x)[..., 0] / ops.sqrt(scale)
    return keras.Model([item, demand, calendar], ops.stack([mean, shape], axis=-1))


def loss(y_true, y_pred):
    """Negative binomial of mean m and variance m + a m^2, averaged over the days."""
    mean, shape = y_pred[..., 0], y_pred[..., 1]
    count = 1 / shape
    log_likelihood = (
        tf.math.lgamma(y_true + count)
        - tf.math.lgamma(count)
        - tf.math.lgamma(y_true + 1)
        - count * ops.log1p(shape * mean)
        + y_true * (ops.log(shape * mean) - ops.log1p(shape * mean))
    )
    return -ops.mean(log_likelihood, axis=1)
