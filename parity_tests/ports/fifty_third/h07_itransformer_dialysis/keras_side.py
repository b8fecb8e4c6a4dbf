"""Forecast of dialysis machine signals: iTransformer trained with AdaBelief."""

import math

import keras
from keras import layers, ops

LOOKBACK, HORIZON, SIGNALS = 32, 8, 7
WIDTH, HEADS, BLOCKS = 24, 4, 2


class InstanceStandardise(layers.Layer):
    """Returns the window standardised over time, with its level and scale."""

    def call(self, x):
        level = ops.mean(x, axis=1, keepdims=True)
        scale = ops.sqrt(ops.var(x, axis=1, keepdims=True) + 1e-5)
        return (x - level) / scale, level, scale


def encoder_block(x, name):
    a = layers.MultiHeadAttention(HEADS, WIDTH // HEADS, name=name + "_mha")(x, x)
    x = layers.LayerNormalization(epsilon=1e-5, name=name + "_ln1")(x + a)
    f = layers.Dense(2 * WIDTH, activation="gelu", name=name + "_ff1")(x)
    f = layers.Dense(WIDTH, name=name + "_ff2")(f)
    return layers.LayerNormalization(epsilon=1e-5, name=name + "_ln2")(x + f)


def build():
    window = keras.Input((LOOKBACK, SIGNALS), name="window")
    x, level, scale = InstanceStandardise(name="revin")(window)
    x = layers.Permute((2, 1))(x)  # a token for each signal
    x = layers.Dense(WIDTH, name="variate_embedding")(x)
    for i in range(BLOCKS):
        x = encoder_block(x, f"block{i}")
    x = layers.Dense(HORIZON, name="projector")(x)
    x = layers.Permute((2, 1))(x)
    return keras.Model(window, x * scale + level, name="itransformer")


class WarmupCosine(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, peak, warmup, total, floor=0.05):
        self.peak, self.warmup, self.total, self.floor = peak, warmup, total, floor

    def __call__(self, step):
        step = ops.cast(step, "float32")
        rising = (step + 1.0) / self.warmup
        done = ops.clip((step - self.warmup) / (self.total - self.warmup), 0.0, 1.0)
        falling = self.floor + (1.0 - self.floor) * 0.5 * (1.0 + ops.cos(math.pi * done))
        return self.peak * ops.where(step < self.warmup, rising, falling)

    def get_config(self):
        return dict(peak=self.peak, warmup=self.warmup, total=self.total, floor=self.floor)


class AdaBelief(keras.optimizers.Optimizer):
    """Zhuang et al., 2020, with decoupled weight decay."""

    def __init__(
        self,
        learning_rate=1e-3,
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-10,
        decay=1e-2,
        name="adabelief",
        **kwargs,
    ):
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        self.beta_1, self.beta_2, self.epsilon, self.decay = beta_1, beta_2, epsilon, decay

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.m = [self.add_variable_from_reference(v, name="m") for v in variables]
        self.s = [self.add_variable_from_reference(v, name="s") for v in variables]

    def update_step(self, gradient, variable, learning_rate):
        lr = ops.cast(learning_rate, variable.dtype)
        gradient = ops.cast(gradient, variable.dtype)
        t = ops.cast(self.iterations + 1, variable.dtype)
        m = self.m[self._get_variable_index(variable)]
        s = self.s[self._get_variable_index(variable)]
        self.assign_add(m, (gradient - m) * (1.0 - self.beta_1))
        surprise = ops.square(gradient - m)
        self.assign(s, self.beta_2 * s + (1.0 - self.beta_2) * surprise + self.epsilon)
        m_hat = m / (1.0 - ops.power(ops.cast(self.beta_1, variable.dtype), t))
        s_hat = s / (1.0 - ops.power(ops.cast(self.beta_2, variable.dtype), t))
        self.assign_sub(variable, lr * self.decay * variable)
        self.assign_sub(variable, lr * m_hat / (ops.sqrt(s_hat) + self.epsilon))

    def get_config(self):
        config = super().get_config()
        config.update(beta_1=self.beta_1, beta_2=self.beta_2, epsilon=self.epsilon, decay=self.decay)
        return config


def optimizer():
    return AdaBelief(WarmupCosine(peak=2e-3, warmup=8, total=50))
