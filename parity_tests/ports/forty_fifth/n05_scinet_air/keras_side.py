"""SCINet for air quality: even and odd samples interact in a binary tree; two stacks with supervision in between."""

import keras
import numpy as np
from keras import layers, ops

PAST, HORIZON, SENSORS = 48, 24, 7
LEVELS, EXPAND = 2, 2
DELTA, BETWEEN = 0.5, 0.4

_angle = np.arange(PAST)[:, None] / 10000.0 ** (2 * (np.arange(SENSORS + 1) // 2) / (SENSORS + 1))[None]
POSITIONS = np.where(np.arange(SENSORS + 1) % 2 == 0, np.sin(_angle), np.cos(_angle))[:, :SENSORS].astype(
    np.float32
)


class EdgePad(layers.Layer):
    """Repeats the first and the last step."""

    def __init__(self, width, **kwargs):
        super().__init__(**kwargs)
        self.width = width

    def call(self, x):
        first = ops.repeat(x[:, :1], self.width, axis=1)
        last = ops.repeat(x[:, -1:], self.width, axis=1)
        return ops.concatenate([first, x, last], axis=1)

    def compute_output_shape(self, shape):
        return (shape[0], shape[1] + 2 * self.width, shape[2])


def interactor(name):
    return keras.Sequential(
        [
            EdgePad(3),
            layers.Conv1D(EXPAND * SENSORS, 5),
            layers.LeakyReLU(negative_slope=0.125),
            layers.Conv1D(SENSORS, 3, activation="tanh"),
        ],
        name=name,
    )


class Tree(layers.Layer):
    def __init__(self, level, **kwargs):
        super().__init__(**kwargs)
        self.phi, self.psi = interactor("phi"), interactor("psi")
        self.rho, self.eta = interactor("rho"), interactor("eta")
        self.even = Tree(level - 1, name="even") if level > 1 else None
        self.odd = Tree(level - 1, name="odd") if level > 1 else None

    def build(self, shape):
        half = (shape[0], shape[1] // 2, shape[2])
        for part in (self.phi, self.psi, self.rho, self.eta, self.even, self.odd):
            if part is not None:
                part.build(half)
        super().build(shape)

    def call(self, x):
        even, odd = x[:, ::2], x[:, 1::2]
        odd_scaled = odd * ops.exp(self.phi(even))
        even_scaled = even * ops.exp(self.psi(odd))
        even = even_scaled + self.rho(odd_scaled)
        odd = odd_scaled - self.eta(even_scaled)
        if self.even is not None:
            even, odd = self.even(even), self.odd(odd)
        both = ops.stack([even, odd], axis=2)
        return ops.reshape(both, (-1, x.shape[1], x.shape[2]))

    def compute_output_shape(self, shape):
        return shape


class OverTime(layers.Layer):
    """A linear map of the time axis, shared by the sensors."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[1], HORIZON), initializer="glorot_uniform", name="kernel")
        super().build(shape)

    def call(self, x):
        return ops.einsum("btc,th->bhc", x, self.kernel)


class AddPositions(layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(
            shape=(shape[-1],), initializer=keras.initializers.Constant(0.1), name="scale"
        )
        super().build(shape)

    def call(self, x):
        return x + self.scale * ops.convert_to_tensor(POSITIONS, dtype=x.dtype)


class ObservedNorm(layers.Layer):
    """Mean and spread of what was observed in the window; a missing value becomes the mean."""

    def call(self, x, observed):
        observed = ops.cast(observed, x.dtype)
        count = ops.maximum(ops.sum(observed, axis=1, keepdims=True), 1.0)
        mean = ops.sum(x * observed, axis=1, keepdims=True) / count
        centred = (x - mean) * observed
        spread = ops.sqrt(ops.sum(ops.square(centred), axis=1, keepdims=True) / count + 1e-4)
        return centred / spread, mean, spread


def build():
    history = keras.Input((PAST, SENSORS), name="history")
    observed = keras.Input((PAST, SENSORS), name="observed")
    x, mean, spread = ObservedNorm(name="norm")(history, observed)
    x = AddPositions(name="positions")(x)
    first = OverTime(name="project_1")(layers.Add()([x, Tree(LEVELS, name="tree_1")(x)]))
    y = layers.Concatenate(axis=1)([x[:, HORIZON:], first])
    second = OverTime(name="project_2")(layers.Add()([y, Tree(LEVELS, name="tree_2")(y)]))
    both = ops.stack([first * spread + mean, second * spread + mean], axis=1)
    return keras.Model([history, observed], both, name="scinet")


def loss(targets, outputs):
    """Huber over the values that were observed; the last axis of the targets is value, observed."""
    value, observed = targets[:, None, ..., 0], targets[:, None, ..., 1]
    error = ops.abs(outputs - value)
    huber = ops.where(error <= DELTA, 0.5 * ops.square(error), DELTA * (error - 0.5 * DELTA))
    each = ops.sum(huber * observed, axis=(0, 2, 3)) / ops.sum(observed, axis=(0, 2, 3))
    return each[1] + BETWEEN * each[0]


class WarmupCosine(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, start=2e-4, peak=8e-3, warmup=12, total=200, floor=0.05):
        super().__init__()
        self.start, self.peak, self.warmup, self.total, self.floor = start, peak, warmup, total, floor

    def __call__(self, step):
        step = ops.cast(step, keras.config.floatx())
        rising = self.start + (self.peak - self.start) * step / self.warmup
        done = ops.clip((step - self.warmup) / self.total, 0.0, 1.0)
        falling = self.peak * (self.floor + (1.0 - self.floor) * 0.5 * (1.0 + ops.cos(np.pi * done)))
        return ops.where(step < self.warmup, rising, falling)

    def get_config(self):
        names = ("start", "peak", "warmup", "total", "floor")
        return {name: getattr(self, name) for name in names}


def optimizer():
    lamb = keras.optimizers.Lamb(
        WarmupCosine(), beta_1=0.875, beta_2=1 - 2**-10, epsilon=1e-6, weight_decay=0.02, global_clipnorm=0.5
    )
    lamb.exclude_from_weight_decay(var_names=["bias", "scale"])
    return lamb
