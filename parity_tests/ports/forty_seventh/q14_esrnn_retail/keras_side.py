"""Exponential smoothing with a recurrent network (ES-RNN) for daily sales of shops.

Smoothing coefficients and the first week's seasonality belong to the series, the network to all.
"""

import keras
from keras import layers, ops

DAYS, WEEK, WINDOW, HORIZON, SHOPS = 33, 7, 14, 7, 40
UNITS = 24
TAU = 0.48


class HoltWinters(layers.Layer):
    """Multiplicative, without trend; gives levels of all days and seasonality of a week more."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.level_rate = layers.Embedding(
            SHOPS, 1, embeddings_initializer=keras.initializers.RandomNormal(-0.5, 0.2), name="level_rate"
        )
        self.season_rate = layers.Embedding(
            SHOPS, 1, embeddings_initializer=keras.initializers.RandomNormal(-1.0, 0.2), name="season_rate"
        )
        self.season_start = layers.Embedding(
            SHOPS, WEEK, embeddings_initializer=keras.initializers.RandomNormal(0.0, 0.2), name="season_start"
        )

    def call(self, sales, shop):
        alpha = ops.sigmoid(self.level_rate(shop)[:, 0])
        gamma = ops.sigmoid(self.season_rate(shop)[:, 0])
        start = ops.exp(self.season_start(shop))
        season = [start[:, i] for i in range(WEEK)]
        level = sales[:, 0] / season[0]
        levels = [level]
        season.append(season[0])
        for t in range(1, DAYS):
            level = alpha * sales[:, t] / season[t] + (1 - alpha) * level
            levels.append(level)
            season.append(gamma * sales[:, t] / level + (1 - gamma) * season[t])
        return ops.stack(levels, 1), ops.stack(season, 1)


class DilatedLSTM(layers.Layer):
    """Step t sees the state of step t - dilation: the time axis is dealt out among the batch."""

    def __init__(self, units, dilation, **kwargs):
        super().__init__(**kwargs)
        self.units, self.dilation = units, dilation
        self.lstm = layers.LSTM(units, return_sequences=True, name="lstm")

    def call(self, x):
        steps, width, d = x.shape[1], x.shape[2], self.dilation
        x = ops.reshape(x, (-1, steps // d, d, width))
        x = ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, steps // d, width))
        x = ops.reshape(self.lstm(x), (-1, d, steps // d, self.units))
        return ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, steps, self.units))


class Windows(layers.Layer):
    """Logarithms of sales without season, relative to the level at the end of the window."""

    def call(self, sales, levels, season):
        rows = []
        for end in range(WINDOW, DAYS + 1):
            cut = slice(end - WINDOW, end)
            rows.append(ops.log(sales[:, cut] / season[:, cut] / levels[:, end - 1 : end]))
        return ops.stack(rows, 1)


def build():
    sales = keras.Input((DAYS,), name="sales")
    shop = keras.Input((), dtype="int32", name="shop")
    levels, season = HoltWinters(name="smoothing")(sales, shop)
    x = Windows(name="windows")(sales, levels, season)
    x = DilatedLSTM(UNITS, 1, name="first")(x)
    x = x + DilatedLSTM(UNITS, 2, name="second")(x)
    x = x + DilatedLSTM(UNITS, 4, name="third")(x)
    x = layers.Dense(UNITS, activation="tanh", name="dense")(x[:, -1])
    x = layers.Dense(HORIZON, name="ratio")(x)
    y = ops.exp(x) * levels[:, -1:] * season[:, DAYS : DAYS + HORIZON]
    return keras.Model({"sales": sales, "shop": shop}, y)


def relative_pinball(targets, outputs):
    """Pinball loss over the mean sales of the week to come."""
    error = targets - outputs
    pinball = ops.maximum(TAU * error, (TAU - 1.0) * error)
    return ops.mean(pinball / ops.mean(targets, axis=1, keepdims=True))


def optimizer():
    rate = keras.optimizers.schedules.PiecewiseConstantDecay([15, 31], [0.25, 0.125, 0.0625])
    sgd = keras.optimizers.SGD(rate, weight_decay=2**-8)
    sgd.exclude_from_weight_decay(var_names=["bias"])
    return sgd
