"""Quantile forecaster for shop demand: reversible instance norm and a mixer.

x (36, 3): demand, price, footfall. y (12,): demand of the next 12 periods.
Output (12, 3): the 0.1, 0.5 and 0.9 quantiles, which cannot cross.
"""

import keras
from keras import layers, ops

HISTORY, CHANNELS, HORIZON = 36, 3, 12
QUANTILES = (0.1, 0.5, 0.9)
DEPTH, HIDDEN = 2, 10


class InstanceNorm(layers.Layer):
    """Standardises every series over time and applies a learned affine map."""

    def build(self, input_shape):
        c = input_shape[-1]
        self.gamma = self.add_weight(shape=(c,), initializer="ones", name="gamma")
        self.beta = self.add_weight(shape=(c,), initializer="zeros", name="beta")

    def call(self, x):
        mean = ops.mean(x, axis=1, keepdims=True)
        scale = ops.sqrt(ops.var(x, axis=1, keepdims=True) + 1e-5)
        return (x - mean) / scale * self.gamma + self.beta, mean, scale

    def inverse(self, y, mean, scale, channel=0):
        y = (y - self.beta[channel]) / self.gamma[channel]
        return y * scale[:, :, channel : channel + 1] + mean[:, :, channel : channel + 1]


def mixer(x, name):
    y = layers.LayerNormalization(axis=[1, 2], epsilon=1e-3, name=f"{name}_norm_t")(x)
    y = layers.Permute((2, 1), name=f"{name}_to_time")(y)
    y = layers.Dense(HISTORY, activation="relu", name=f"{name}_time")(y)
    y = layers.Permute((2, 1), name=f"{name}_to_channels")(y)
    y = layers.Dropout(0.1, name=f"{name}_drop")(y)
    x = layers.Add(name=f"{name}_add_t")([x, y])
    y = layers.Dense(HIDDEN, activation="relu", name=f"{name}_expand")(x)
    y = layers.Dense(CHANNELS, name=f"{name}_reduce")(y)
    return layers.Add(name=f"{name}_add_c")([x, y])


class QuantileForecaster(keras.Model):
    """Wraps the mixer with the norm and its inverse."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.norm = InstanceNorm(name="norm")
        series = x = keras.Input((HISTORY, CHANNELS))
        for i in range(DEPTH):
            x = mixer(x, f"mixer{i}")
        x = layers.Dense(len(QUANTILES), name="quantiles")(x)
        x = layers.Permute((2, 1))(x)
        x = layers.Dense(HORIZON, name="horizon")(x)
        self.mix = keras.Model(series, layers.Permute((2, 1))(x), name="mix")

    def call(self, x, training=None):
        x, mean, scale = self.norm(x)
        raw = self.mix(x, training=training)
        gaps = ops.softplus(raw[..., 1:])
        ordered = ops.cumsum(ops.concatenate([raw[..., :1], gaps], axis=-1), axis=-1)
        return self.norm.inverse(ordered, mean, scale)


def build():
    model = QuantileForecaster(name="quantile_forecaster")
    model(ops.zeros((1, HISTORY, CHANNELS)))
    return model


def loss(y_true, y_pred):
    """Pinball loss, averaged over batch, horizon and quantiles."""
    q = ops.convert_to_tensor(QUANTILES, dtype=y_pred.dtype)
    error = y_true[..., None] - y_pred
    return ops.mean(ops.maximum(q * error, (q - 1.0) * error))


def make_optimizer():
    optimizer = keras.optimizers.AdamW(learning_rate=3e-3, weight_decay=0.05, beta_2=0.98, epsilon=1e-7)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    return optimizer
