"""A retentive network in its parallel form, which forecasts the next value of a series with covariates."""

import keras
import numpy as np
from keras import layers, ops

STEPS, WIDTH, HEADS, BLOCKS = 24, 32, 4, 2


def rotate(x, angles):
    """Turns neighbouring channels (x[2i], x[2i + 1]) by an angle that grows with the position."""
    cos, sin = ops.convert_to_tensor(np.cos(angles), x.dtype), ops.convert_to_tensor(np.sin(angles), x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = ops.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    return ops.reshape(turned, ops.shape(x))


class Retention(layers.Layer):
    def __init__(self, width, heads, **kwargs):
        super().__init__(**kwargs)
        self.width, self.heads, self.head_width = width, heads, width // heads
        self.query = layers.Dense(width, use_bias=False, name="query")
        self.key = layers.Dense(width, use_bias=False, name="key")
        self.value = layers.Dense(width, use_bias=False, name="value")
        self.gate = layers.Dense(width, use_bias=False, name="gate")
        self.out = layers.Dense(width, use_bias=False, name="out")

    def call(self, x):
        steps, d = x.shape[1], self.head_width

        def heads(y):
            return ops.transpose(ops.reshape(y, (-1, steps, self.heads, d)), (0, 2, 1, 3))

        position = np.arange(steps)
        angles = position[:, None] * 100.0 ** (-np.linspace(0, 1, d // 2))
        q = rotate(heads(self.query(x)), angles)
        k = rotate(heads(self.key(x)), angles) * d**-0.5
        v = heads(self.value(x))

        gamma = 1.0 - 2.0 ** (-2.0 - np.arange(self.heads))
        lag = position[:, None] - position[None, :]
        decay = np.where(lag >= 0, gamma[:, None, None] ** np.maximum(lag, 0), 0.0)
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * ops.convert_to_tensor(decay, x.dtype)
        y = ops.matmul(scores, v)

        # A norm for each head and position, without gain
        y = y - ops.mean(y, axis=-1, keepdims=True)
        y = y / ops.sqrt(ops.mean(ops.square(y), axis=-1, keepdims=True) + 1e-5)
        y = ops.reshape(ops.transpose(y, (0, 2, 1, 3)), (-1, steps, self.width))
        return self.out(keras.activations.silu(self.gate(x)) * y)


class RetentiveForecaster(keras.Model):
    def __init__(self):
        super().__init__()
        self.embed = layers.Dense(WIDTH, name="embed")
        self.norms1 = [layers.LayerNormalization(epsilon=1e-5, name=f"norm1_{i}") for i in range(BLOCKS)]
        self.retentions = [Retention(WIDTH, HEADS, name=f"retention_{i}") for i in range(BLOCKS)]
        self.norms2 = [layers.LayerNormalization(epsilon=1e-5, name=f"norm2_{i}") for i in range(BLOCKS)]
        self.expand = [layers.Dense(2 * WIDTH, activation="silu", name=f"expand_{i}") for i in range(BLOCKS)]
        self.contract = [layers.Dense(WIDTH, name=f"contract_{i}") for i in range(BLOCKS)]
        self.dropout = layers.Dropout(0.1)
        self.forecast = layers.Dense(1, name="forecast")

    def call(self, x, training=None):
        x = self.embed(x)
        for i in range(BLOCKS):
            x = x + self.dropout(self.retentions[i](self.norms1[i](x)), training=training)
            x = x + self.dropout(self.contract[i](self.expand[i](self.norms2[i](x))), training=training)
        return self.forecast(x[:, -1])


def loss(y_true, y_pred):
    """Huber's, with its corner at 1"""
    error = ops.reshape(y_pred, (-1,)) - ops.cast(ops.reshape(y_true, (-1,)), y_pred.dtype)
    size = ops.abs(error)
    return ops.where(size < 1.0, 0.5 * ops.square(error), size - 0.5)
