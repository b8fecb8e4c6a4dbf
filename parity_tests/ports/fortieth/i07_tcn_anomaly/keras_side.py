import keras
import numpy as np
from keras import layers, ops

T, C, WIDTH = 32, 4, 12
RECENT = np.linspace(0.5, 1.5, T, dtype="float32")[:, None]
UNIT = np.array([1, 6, 0.3, 3], "float32")


class RevIN(layers.Layer):
    """Reversible instance norm; called with the statistics it is the inverse."""

    def build(self, shape):
        self.w = self.add_weight(name="w", shape=(C,), initializer=keras.initializers.RandomUniform(0.8, 1.2))
        self.b = self.add_weight(
            name="b", shape=(C,), initializer=keras.initializers.RandomUniform(-0.1, 0.1)
        )

    def call(self, x, mean=None, std=None):
        if mean is not None:
            return (x - self.b) / (self.w + 1e-5) * std + mean
        mean, var = ops.moments(x, axes=[1], keepdims=True)
        mean, std = ops.stop_gradient(mean), ops.stop_gradient(ops.sqrt(var + 1e-5))
        return (x - mean) / std * self.w + self.b, mean, std


def temporal(x, dilation, name):
    y = layers.Conv1D(WIDTH, 3, padding="causal", dilation_rate=dilation, name=f"{name}_a")(x)
    y = layers.PReLU(alpha_initializer=keras.initializers.Constant(0.2), shared_axes=[1], name=f"{name}_act")(
        y
    )
    y = layers.SpatialDropout1D(0.1)(y)
    y = layers.Conv1D(WIDTH, 3, padding="causal", dilation_rate=dilation, use_bias=False, name=f"{name}_b")(y)
    y = layers.LayerNormalization(name=f"{name}_ln")(y)
    if x.shape[-1] != WIDTH:
        x = layers.Conv1D(WIDTH, 1, name=f"{name}_match")(x)
    return ops.gelu(x + y, approximate=True)


def build():
    inp = keras.Input((T, C), name="series")
    rev = RevIN(name="revin")
    x, mean, std = rev(inp)
    for d in (1, 2, 4):
        x = temporal(x, d, f"enc{d}")
    x = layers.AveragePooling1D(4)(x)
    z = layers.Dense(5, activation="tanh", name="code")(x)
    x = layers.Conv1DTranspose(WIDTH, 4, strides=4, name="unpool")(z)
    for d in (4, 1):
        x = temporal(x, d, f"dec{d}")
    x = layers.Dense(C, name="readout")(x)
    return keras.Model(inp, rev(x, mean=mean, std=std), name="tcn_autoencoder")


def loss(y, p):
    e = (p - y) / UNIT
    level = ops.mean(
        (ops.abs(e) + ops.softplus(-2.0 * ops.abs(e)) - np.float32(np.log(2.0))) * RECENT, axis=(1, 2)
    )
    slope = ops.mean(ops.abs(e[:, 1:] - e[:, :-1]), axis=(1, 2))
    return level + 0.25 * slope
