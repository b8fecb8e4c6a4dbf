"""N-BEATS: a trend stack whose two blocks share their weights, and a generic stack."""

import keras
import numpy as np
from keras import layers, ops


class TrendBlock(layers.Layer):
    def __init__(self, back, ahead, units, degree=2, **kwargs):
        super().__init__(**kwargs)
        self.fc = [layers.Dense(units, activation="relu", name=f"fc{i}") for i in range(3)]
        self.theta_b = layers.Dense(degree + 1, use_bias=False, name="theta_b")
        self.theta_f = layers.Dense(degree + 1, use_bias=False, name="theta_f")
        t = np.arange(back + ahead) / (back + ahead)
        basis = np.stack([t**i for i in range(degree + 1)]).astype("float32")
        self.basis_b, self.basis_f = basis[:, :back], basis[:, back:]

    def call(self, x):
        for fc in self.fc:
            x = fc(x)

        def cast(b):
            return ops.cast(b, self.compute_dtype)

        return ops.matmul(self.theta_b(x), cast(self.basis_b)), ops.matmul(
            self.theta_f(x), cast(self.basis_f)
        )


class GenericBlock(layers.Layer):
    def __init__(self, back, ahead, units, **kwargs):
        super().__init__(**kwargs)
        self.fc = [layers.Dense(units, activation="relu", name=f"fc{i}") for i in range(3)]
        self.backcast = layers.Dense(back, name="backcast")
        self.forecast = layers.Dense(ahead, name="forecast")

    def call(self, x):
        for fc in self.fc:
            x = fc(x)
        return self.backcast(x), self.forecast(x)


class NBeats(keras.Model):
    def __init__(self, back=24, ahead=6, units=32):
        super().__init__(name="nbeats")
        self.trend = TrendBlock(back, ahead, units, name="trend")
        self.generic1 = GenericBlock(back, ahead, units, name="generic1")
        self.generic2 = GenericBlock(back, ahead, units, name="generic2")

    def call(self, x):
        total = 0.0
        for block in (self.trend, self.trend, self.generic1, self.generic2):
            backcast, forecast = block(x)
            x = x - backcast
            total = total + forecast
        return total
