"""N-HiTS for the heat load of a district: four days of hours in, one day out.

Hours whose meter failed are zero in `history` and zero in `observed`.
"""

import keras
import numpy as np
from keras import layers, ops

LOOKBACK, HORIZON, CALENDAR = 96, 24, 4
# pooling of the input, knots of the backcast, knots of the forecast
STACKS = ((8, 12, 3), (4, 24, 6), (1, 96, 24))
BLOCKS = 2
UNITS = 64


def _keys(x):
    x = np.abs(x)
    near = 1.5 * x**3 - 2.5 * x**2 + 1.0
    far = -0.5 * x**3 + 2.5 * x**2 - 4.0 * x + 2.0
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def cubic_matrix(knots, size):
    """Resizes a row of knots as tf.image.resize(method="bicubic") does."""
    centres = (np.arange(size) + 0.5) * knots / size - 0.5
    table = _keys(centres[None, :] - np.arange(knots)[:, None])
    return table / table.sum(0, keepdims=True)


class CubicInterpolation(layers.Layer):
    def __init__(self, size, **kwargs):
        super().__init__(**kwargs)
        self.size = size

    def build(self, shape):
        self.table = cubic_matrix(shape[-1], self.size)
        self.built = True

    def call(self, knots):
        return ops.matmul(knots, ops.convert_to_tensor(self.table, dtype=self.compute_dtype))


class Block(layers.Layer):
    def __init__(self, pool, back_knots, fore_knots, **kwargs):
        super().__init__(**kwargs)
        self.pool = layers.MaxPooling1D(pool, name="pool")
        self.future = layers.Dense(8, name="future")
        self.hidden = [layers.Dense(UNITS, activation="relu", name=f"hidden{i}") for i in range(2)]
        self.back = layers.Dense(back_knots, use_bias=False, name="back")
        self.fore = layers.Dense(fore_knots, use_bias=False, name="fore")
        self.back_curve = CubicInterpolation(LOOKBACK)
        self.fore_curve = CubicInterpolation(HORIZON)

    def call(self, residual, future):
        x = ops.squeeze(self.pool(ops.expand_dims(residual, -1)), -1)
        x = ops.concatenate([x, self.future(future)], axis=-1)
        for dense in self.hidden:
            x = dense(x)
        return self.back_curve(self.back(x)), self.fore_curve(self.fore(x))


def build():
    future = keras.Input((HORIZON, CALENDAR), name="future")
    history = keras.Input((LOOKBACK,), name="history")
    observed = keras.Input((LOOKBACK,), name="observed")

    count = ops.maximum(ops.sum(observed, axis=1, keepdims=True), 1.0)
    level = ops.sum(history * observed, axis=1, keepdims=True) / count
    spread = ops.sum(ops.abs(history - level) * observed, axis=1, keepdims=True) / count + 0.1
    residual = (history - level) / spread * observed
    calendar = layers.Flatten()(future)

    forecast = ops.zeros_like(future[:, :, 0])
    for s, sizes in enumerate(STACKS):
        for b in range(BLOCKS):
            back, fore = Block(*sizes, name=f"stack{s}_block{b}")(residual, calendar)
            residual = (residual - back) * observed
            forecast = forecast + fore
    outputs = forecast * spread + level
    return keras.Model({"future": future, "history": history, "observed": observed}, outputs)
