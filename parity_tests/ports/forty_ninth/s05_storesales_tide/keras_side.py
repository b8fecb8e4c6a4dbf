"""Fourteen days of sales for each store from eight weeks of history (time-series dense encoder)."""

import keras
from keras import layers, ops

HISTORY, HORIZON = 56, 14
STORES = 15


class DenseResidual(layers.Layer):
    def __init__(self, hidden, units, **kwargs):
        super().__init__(**kwargs)
        self.inner = layers.Dense(hidden, activation="relu", name="inner")
        self.outer = layers.Dense(units, name="outer")
        self.skip = layers.Dense(units, name="skip")
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="norm")

    def call(self, x):
        return self.norm(self.outer(self.inner(x)) + self.skip(x))


class TiDE(keras.Model):
    def __init__(self, hidden=32, decoded=6, **kwargs):
        super().__init__(**kwargs)
        self.store_table = layers.Embedding(STORES, 4, name="store_table")
        self.calendar_encoder = DenseResidual(16, 3, name="calendar_encoder")
        self.encoder = [DenseResidual(hidden, hidden, name=f"encoder_{i}") for i in range(2)]
        self.decoder = [
            DenseResidual(hidden, hidden, name="decoder_0"),
            DenseResidual(hidden, HORIZON * decoded, name="decoder_1"),
        ]
        self.unfold = layers.Reshape((HORIZON, decoded))
        self.day_decoder = DenseResidual(8, 4, name="day_decoder")
        self.day_out = layers.Dense(1, name="day_out")
        self.direct = layers.Dense(HORIZON, name="direct")

    def call(self, sales, calendar, store):
        level = ops.mean(sales, axis=1, keepdims=True) + 1.0
        history = sales / level
        dates = self.calendar_encoder(calendar)
        flat = ops.reshape(dates, (-1, (HISTORY + HORIZON) * 3))
        x = ops.concatenate([history, flat, self.store_table(store[:, 0])], axis=-1)
        for block in self.encoder + self.decoder:
            x = block(x)
        days = ops.concatenate([self.unfold(x), dates[:, HISTORY:]], axis=-1)
        days = self.day_out(ops.concatenate([days, self.day_decoder(days)], axis=-1))
        return (ops.squeeze(days, -1) + self.direct(history)) * level


def build():
    sales = keras.Input((HISTORY,), name="sales")
    calendar = keras.Input((HISTORY + HORIZON, 5), name="calendar")
    store = keras.Input((1,), dtype="int32", name="store")
    return keras.Model([sales, calendar, store], TiDE(name="tide")(sales, calendar, store))


def wape(targets, outputs):
    """Absolute error of a store's fortnight as a share of what it sold."""
    error = ops.sum(ops.abs(targets - outputs), axis=-1)
    return error / ops.maximum(ops.sum(targets, axis=-1), 1.0)


def optimizer():
    rate = keras.optimizers.schedules.ExponentialDecay(0.05, decay_steps=10, decay_rate=0.6)
    return keras.optimizers.SGD(rate)
