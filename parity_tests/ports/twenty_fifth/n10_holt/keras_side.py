"""Demand with gaps: learned Holt smoothing, a recurrent net on what it leaves over, a loss over the days that were observed."""

import keras
from keras import layers, ops

HORIZON = 6


class Holt(layers.Layer):
    """Level and trend of every series, begun at its first two values; gives the surprises too."""

    def build(self, shape):
        self.level_logit = self.add_weight(
            shape=(shape[-1],), name="level_logit", initializer=keras.initializers.Constant(-0.4)
        )
        self.trend_logit = self.add_weight(
            shape=(shape[-1],), name="trend_logit", initializer=keras.initializers.Constant(-1.5)
        )

    def call(self, x):
        a, b = ops.sigmoid(self.level_logit), ops.sigmoid(self.trend_logit)
        level, trend = x[:, 0], x[:, 1] - x[:, 0]
        surprises = []
        for t in range(1, x.shape[1]):
            surprises.append(x[:, t] - level - trend)
            new_level = a * x[:, t] + (1 - a) * (level + trend)
            trend = b * (new_level - level) + (1 - b) * trend
            level = new_level
        return level, trend, ops.stack(surprises, axis=1)


def build():
    series = keras.Input((24, 3), name="series")
    level, trend, surprises = Holt(name="holt")(series)
    state = layers.SimpleRNN(12, name="rnn")(surprises)
    correction = layers.Dense(HORIZON, name="correction")(state)
    ahead = ops.expand_dims(ops.cast(ops.arange(1, HORIZON + 1), series.dtype), 0)
    return keras.Model(series, level[:, :1] + trend[:, :1] * ahead + correction)


def observed_error(targets, outputs):
    """The first half of a row are the values, the second half whether they were observed. A value for each sample."""
    values, seen = ops.split(ops.cast(targets, outputs.dtype), 2, axis=-1)
    distance = ops.abs(values - outputs)
    smooth = ops.where(distance < 1, 0.5 * ops.square(distance), distance - 0.5)
    return ops.sum(seen * smooth, axis=-1) / ops.sum(seen, axis=-1)
