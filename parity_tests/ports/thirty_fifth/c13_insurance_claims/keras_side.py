"""Motor insurance: claim frequency (Poisson, with exposure) and claim size (Gamma) from one deep & cross trunk."""

import keras
from keras import layers, ops

REGIONS, MEAN, VAR = 6, [44.0, 6.0, 75.0, 50.0], [196.0, 16.0, 900.0, 625.0]


class Cross(layers.Layer):
    """x0 * (W x + b) + x"""

    def build(self, shapes):
        n = shapes[0][-1]
        self.kernel = self.add_weight(name="kernel", shape=(n, n), initializer="glorot_uniform")
        self.bias = self.add_weight(name="bias", shape=(n,), initializer="zeros")

    def call(self, inputs):
        x0, x = inputs
        return x0 * (ops.matmul(x, self.kernel) + self.bias) + x


def build():
    numeric = keras.Input((4,), name="numeric")
    region = keras.Input((1,), dtype="int32", name="region")
    exposure = keras.Input((1,), name="exposure")
    z = layers.Normalization(mean=MEAN, variance=VAR, name="standard")(numeric)
    r = layers.CategoryEncoding(REGIONS, output_mode="one_hot", name="onehot")(region)
    x0 = layers.Concatenate(name="x0")([z, r])
    x = Cross(name="cross1")([x0, x0])
    x = Cross(name="cross2")([x0, x])
    h = layers.Dense(16, activation="relu", name="deep1")(x0)
    h = layers.Dense(8, activation="relu", name="deep2")(h)
    both = layers.Concatenate(name="both")([x, h])
    rate = layers.Dense(1, activation="exponential", name="rate")(both)
    freq = layers.Multiply(name="freq")([rate, exposure])
    size = layers.Dense(1, activation="exponential", name="size")(both)
    return keras.Model([numeric, region, exposure], {"freq": freq, "size": size}, name="claims")


def poisson(y_true, y_pred):
    return ops.mean(y_pred - y_true * ops.log(y_pred))


def gamma(y_true, y_pred):
    """Gamma deviance / 2 where there was a claim, 0 elsewhere."""
    has = ops.cast(y_true > 0, y_pred.dtype)
    safe = ops.where(y_true > 0, y_true, ops.ones_like(y_true))
    return ops.mean(has * (safe / y_pred - ops.log(safe / y_pred) - 1.0))
