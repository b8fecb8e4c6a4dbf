"""Lesion segmentation with a two-level U-Net, Dice + BCE, AdaBelief with warm-up."""

import math

import keras
from keras import layers, ops

WARMUP, TOTAL, BASE_LR = 8, 60, 4e-3


class AdaBelief(keras.optimizers.Optimizer):
    def __init__(self, learning_rate=1e-3, beta_1=0.9, beta_2=0.99, epsilon=1e-8, **kw):
        super().__init__(learning_rate=learning_rate, **kw)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self._m = [self.add_variable_from_reference(v, name="m") for v in variables]
        self._s = [self.add_variable_from_reference(v, name="s") for v in variables]

    def update_step(self, gradient, variable, learning_rate):
        dt = variable.dtype
        i = self._get_variable_index(variable)
        m, s = self._m[i], self._s[i]
        g = ops.cast(gradient, dt)
        t = ops.cast(self.iterations, dt)
        warm = ops.minimum((t + 1.0) / WARMUP, 1.0)
        progress = ops.maximum(t - WARMUP, 0.0) / (TOTAL - WARMUP)
        lr = ops.cast(learning_rate, dt) * warm * 0.5 * (1.0 + ops.cos(math.pi * progress))
        self.assign(m, self.beta_1 * m + (1.0 - self.beta_1) * g)
        self.assign(s, self.beta_2 * s + (1.0 - self.beta_2) * ops.square(g - m) + self.epsilon)
        c1 = 1.0 - ops.power(ops.convert_to_tensor(self.beta_1, dtype=dt), t + 1.0)
        c2 = 1.0 - ops.power(ops.convert_to_tensor(self.beta_2, dtype=dt), t + 1.0)
        self.assign_sub(variable, lr * (m / c1) / (ops.sqrt(s / c2) + self.epsilon))


def make():
    return AdaBelief(learning_rate=BASE_LR)


def dice_bce(y_true, y_pred):
    bce = ops.mean(ops.softplus(y_pred) - y_true * y_pred)
    p = ops.sigmoid(y_pred)
    inter = ops.sum(p * y_true, axis=(1, 2, 3))
    total = ops.sum(p, axis=(1, 2, 3)) + ops.sum(y_true, axis=(1, 2, 3))
    return bce + ops.mean(1.0 - (2.0 * inter + 1.0) / (total + 1.0))


def conv(x, filters, name):
    return layers.Conv2D(filters, 3, padding="same", activation="relu", name=name)(x)


def build():
    img = keras.Input((16, 16, 1), name="x")
    e1 = conv(img, 8, "enc1")
    e2 = conv(layers.MaxPooling2D()(e1), 12, "enc2")
    mid = conv(layers.MaxPooling2D()(e2), 16, "mid")
    d2 = layers.Concatenate()([layers.UpSampling2D()(mid), e2])
    d2 = conv(d2, 12, "dec2")
    d1 = layers.Concatenate()([layers.UpSampling2D()(d2), e1])
    d1 = conv(d1, 8, "dec1")
    return keras.Model(img, layers.Conv2D(1, 1, name="mask")(d1), name="unet")
