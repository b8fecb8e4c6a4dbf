"""Diagonal state-space network for remaining-life estimation from sensors.

Each channel carries N decaying states, discretised with zero-order hold:
    s[t] = exp(a dt) s[t-1] + (exp(a dt) - 1) / a * b * u[t]
    y[t] = sum_n c_n s_n[t] + d u[t]
"""

import keras
from keras import layers, ops

STEPS, SENSORS = 32, 4
CHANNELS, STATES, DEPTH = 8, 4, 2


class DiagonalSSM(layers.Layer):
    """State-space scan over the time axis of (batch, time, channels)."""

    def build(self, input_shape):
        d = input_shape[-1]
        spread = keras.initializers.RandomUniform(-1.0, 1.0)
        normal = keras.initializers.RandomNormal(stddev=0.7)
        self.log_decay = self.add_weight(shape=(d, STATES), initializer=spread, name="log_decay")
        self.b = self.add_weight(shape=(d, STATES), initializer=normal, name="b")
        self.c = self.add_weight(shape=(d, STATES), initializer=normal, name="c")
        self.skip = self.add_weight(shape=(d,), initializer="ones", name="skip")
        self.log_dt = self.add_weight(
            shape=(d,),
            initializer=keras.initializers.RandomUniform(-2.5, -0.5),
            name="log_dt",
        )

    def call(self, u):
        a = -ops.exp(self.log_decay)
        decay = ops.exp(a * ops.exp(self.log_dt)[:, None])
        gain = (decay - 1.0) / a * self.b
        state = ops.zeros_like(u[:, 0, :, None]) * decay
        outputs = []
        for t in range(u.shape[1]):
            state = decay * state + gain * u[:, t, :, None]
            outputs.append(ops.sum(self.c * state, axis=-1))
        return ops.stack(outputs, axis=1) + self.skip * u


def block(x, name):
    y = layers.LayerNormalization(epsilon=1e-5, name=f"{name}_norm")(x)
    y = DiagonalSSM(name=f"{name}_ssm")(y)
    y = layers.Activation("silu", name=f"{name}_act")(y)
    value = layers.Dense(CHANNELS, name=f"{name}_value")(y)
    gate = layers.Dense(CHANNELS, activation="sigmoid", name=f"{name}_gate")(y)
    y = layers.Multiply(name=f"{name}_glu")([value, gate])
    return layers.Add(name=f"{name}_add")([x, y])


def build():
    signal = keras.Input((STEPS, SENSORS), name="signal")
    x = layers.Dense(CHANNELS, name="embed")(signal)
    for i in range(DEPTH):
        x = block(x, f"block{i}")
    x = layers.GlobalAveragePooling1D(name="pool")(x)
    life = layers.Dense(2, name="life")(x)
    return keras.Model(signal, life, name="ssm_life")
