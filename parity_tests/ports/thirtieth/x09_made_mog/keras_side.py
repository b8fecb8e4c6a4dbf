"""MADE with mixture-of-Gaussians conditionals, density model for tabular data.

The target is the input row itself.
"""

import math

import keras
import numpy as np
from keras import layers, ops

D, HIDDEN, MIX = 6, 30, 3


def degrees(n):
    return 1 + np.arange(n) % (D - 1)


@keras.saving.register_keras_serializable("made")
class MaskedDense(layers.Layer):
    def __init__(self, units, in_degrees, out_degrees, strict=False, activation=None, bias_sd=0.0, **kw):
        super().__init__(**kw)
        self.units, self.bias_sd = units, bias_sd
        self.activation = keras.activations.get(activation)
        i, o = np.asarray(in_degrees)[:, None], np.asarray(out_degrees)[None, :]
        self.mask = (i < o) if strict else (i <= o)

    def build(self, shape):
        self.kernel = self.add_weight(
            name="kernel", shape=(shape[-1], self.units), initializer="lecun_normal"
        )
        self.bias = self.add_weight(
            name="bias", shape=(self.units,), initializer=keras.initializers.RandomNormal(stddev=self.bias_sd)
        )

    def call(self, x):
        k = self.kernel * ops.convert_to_tensor(self.mask, dtype=self.kernel.dtype)
        return self.activation(ops.matmul(x, k) + self.bias)


def build():
    din = 1 + np.arange(D)
    h = degrees(HIDDEN)
    return keras.Sequential(
        [
            keras.Input((D,)),
            MaskedDense(HIDDEN, din, h, activation="mish", name="in"),
            MaskedDense(HIDDEN, h, h, activation="mish", name="mid"),
            MaskedDense(D * 3 * MIX, h, np.repeat(din, 3 * MIX), strict=True, bias_sd=0.5, name="out"),
            layers.Reshape((D, 3, MIX)),
        ],
        name="made",
    )


def mixture_nll(y_true, y_pred):
    logits, mean, log_sd = ops.unstack(y_pred, axis=2)
    log_sd = ops.clip(log_sd, -4.0, 4.0)
    z = (ops.expand_dims(y_true, -1) - mean) / ops.exp(log_sd)
    comp = -0.5 * z * z - log_sd - 0.5 * math.log(2.0 * math.pi)
    ll = ops.logsumexp(ops.log_softmax(logits, axis=-1) + comp, axis=-1)
    return ops.mean(-ops.sum(ll, axis=-1))
