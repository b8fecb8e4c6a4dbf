"""LSTNet (Lai et al. 2018) for the load of several stations, three hours ahead."""

import keras
from keras import layers, ops


class LSTNet(keras.Model):
    def __init__(
        self, series=6, window=30, kernel=6, channels=10, hidden=12, skip=6, skip_hidden=5, highway=8
    ):
        super().__init__()
        self.series, self.skip, self.highway = series, skip, highway
        self.steps = (window - kernel + 1) // skip
        self.conv = layers.Conv1D(channels, kernel, activation="relu", name="conv")
        self.dropout = layers.Dropout(0.2)
        self.recurrent = layers.GRU(hidden, name="recurrent")
        self.recurrent_skip = layers.GRU(skip_hidden, name="recurrent_skip")
        self.linear = layers.Dense(series, name="linear")
        self.autoregression = layers.Dense(1, name="autoregression")
        # how large the load of each station is, as an average over the training
        self.scale = self.add_weight(shape=(series,), initializer="ones", trainable=False, name="scale")

    def call(self, x, training=None):
        if training:
            self.scale.assign(0.9 * self.scale + 0.1 * ops.mean(ops.abs(x), axis=(0, 1)))
        x = x / self.scale
        c = self.dropout(self.conv(x), training=training)
        r = self.dropout(self.recurrent(c), training=training)

        # hours of the same phase follow each other
        channels = c.shape[-1]
        s = c[:, -self.steps * self.skip :]
        s = ops.reshape(s, (-1, self.steps, self.skip, channels))
        s = ops.transpose(s, (0, 2, 1, 3))
        s = self.recurrent_skip(ops.reshape(s, (-1, self.steps, channels)))
        s = self.dropout(ops.reshape(s, (-1, self.skip * s.shape[-1])), training=training)
        y = self.linear(ops.concatenate([r, s], axis=-1))

        z = ops.transpose(x[:, -self.highway :], (0, 2, 1))
        return (y + ops.squeeze(self.autoregression(z), -1)) * self.scale


def build():
    return LSTNet()


def relative_error(y_true, y_pred):
    """Relative absolute error of the batch."""
    return ops.sum(ops.abs(y_true - y_pred)) / ops.sum(ops.abs(y_true))
