import keras
from keras import layers, ops

HORIZON = 8
QUANTILES = (0.1, 0.5, 0.9)


class RevIN(layers.Layer):
    """Reversible instance normalisation; `revert` undoes it for a target channel."""

    def __init__(self, channels, eps=1e-5, **kwargs):
        super().__init__(**kwargs)
        self.channels, self.eps = channels, eps

    def build(self, shape):
        self.scale = self.add_weight(shape=(self.channels,), initializer="ones", name="scale")
        self.shift = self.add_weight(shape=(self.channels,), initializer="zeros", name="shift")

    def call(self, x):
        mean = ops.mean(x, axis=1, keepdims=True)
        std = ops.sqrt(ops.var(x, axis=1, keepdims=True) + self.eps)
        return (x - mean) / std * self.scale + self.shift, mean[:, :, :1], std[:, :, :1]

    def revert(self, y, mean, std):
        return (y - self.shift[0]) / self.scale[0] * std + mean


class Residual(layers.Layer):
    def __init__(self, filters, dilation, rate, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters
        self.conv = layers.Conv1D(2 * filters, 3, padding="causal", dilation_rate=dilation)
        self.mix = layers.Conv1D(filters, 1)
        self.dropout = layers.Dropout(rate)

    def build(self, shape):
        self.conv.build(shape)
        self.mix.build((*shape[:-1], self.filters))

    def call(self, x, training=None):
        signal, gate = ops.split(self.conv(x), 2, axis=-1)
        h = self.mix(ops.tanh(signal) * ops.sigmoid(gate))
        return x + self.dropout(h, training=training), h


class Forecaster(keras.Model):
    def __init__(self, channels=3, filters=16):
        super().__init__()
        self.revin = RevIN(channels)
        self.stem = layers.Conv1D(filters, 1)
        self.blocks = [Residual(filters, d, 0.1) for d in (1, 2, 4, 8)]
        self.hidden = layers.Dense(48, activation="elu")
        self.out = layers.Dense(HORIZON * len(QUANTILES))

    def call(self, past, training=None):
        x, mean, std = self.revin(past)
        x, skips = self.stem(x), 0.0
        for block in self.blocks:
            x, skip = block(x, training=training)
            skips = skips + skip
        last = ops.concatenate([skips[:, -1], ops.mean(skips, axis=1)], axis=-1)
        y = ops.reshape(self.out(self.hidden(last)), (-1, HORIZON, len(QUANTILES)))
        return self.revin.revert(y, mean, std)


def build():
    return Forecaster()


def pinball(y_true, y_pred):
    q = ops.convert_to_tensor(QUANTILES, dtype=y_pred.dtype)
    error = y_true[..., None] - y_pred
    return ops.mean(ops.sum(ops.maximum(q * error, (q - 1) * error), axis=-1), axis=-1)
