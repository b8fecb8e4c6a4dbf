"""River flow: quantiles of the next three days from three weeks of flow, rain and temperature.

Dilated causal convolutions with gates; the flow of the window is normalised per sample and the
forecast is put back on its scale.
"""

import keras
from keras import layers, ops

DAYS, SERIES, HORIZON, QUANTILES, CHANNELS = 21, 3, 3, (0.1, 0.5, 0.9), 12


class Normalise(layers.Layer):
    """Subtracts the mean of the window and divides by its deviation, for each sample and series."""

    def call(self, x):
        mean = ops.mean(x, axis=1, keepdims=True)
        std = ops.sqrt(ops.var(x, axis=1, keepdims=True) + 1e-5)
        return (x - mean) / std, mean[:, :, :1], std[:, :, :1]


class GatedBlock(layers.Layer):
    def __init__(self, channels, dilation, **kw):
        super().__init__(**kw)
        self.filter = layers.Conv1D(
            channels, 2, padding="causal", dilation_rate=dilation, activation="tanh", name="filter"
        )
        self.gate = layers.Conv1D(
            channels, 2, padding="causal", dilation_rate=dilation, activation="sigmoid", name="gate"
        )
        self.mix = layers.Conv1D(channels, 1, name="mix")

    def build(self, shape):
        self.filter.build(shape)
        self.gate.build(shape)
        self.mix.build(shape)

    def call(self, x):
        s = self.mix(self.filter(x) * self.gate(x))
        return x + s, s


def build():
    inp = keras.Input((DAYS, SERIES), name="past")
    x, mean, std = Normalise(name="normalise")(inp)
    x = layers.Conv1D(CHANNELS, 1, name="lift")(x)
    skips = []
    for i in range(4):
        x, s = GatedBlock(CHANNELS, 2**i, name=f"block{i}")(x)
        skips.append(s)
    x = layers.ReLU(name="relu")(layers.Add(name="skips")(skips))
    x = layers.Lambda(lambda t: t[:, -1], name="last")(x)
    q = layers.Dense(HORIZON * len(QUANTILES), name="quantiles")(x)
    q = layers.Reshape((HORIZON, len(QUANTILES)), name="grid")(q)
    out = layers.Lambda(lambda a: a[0] * a[2] + a[1], name="rescale")([q, mean, std])
    return keras.Model(inp, out, name="river")


def pinball(y_true, y_pred):
    tau = ops.convert_to_tensor(QUANTILES, dtype=y_pred.dtype)
    err = ops.expand_dims(ops.cast(y_true, y_pred.dtype), -1) - y_pred
    return ops.mean(ops.maximum(tau * err, (tau - 1.0) * err))


def optimizer():
    schedule = keras.optimizers.schedules.ExponentialDecay(
        2**-7, decay_steps=10, decay_rate=0.5, staircase=True
    )
    return keras.optimizers.RMSprop(learning_rate=schedule, rho=0.9, epsilon=1e-6)
