"""CSRNet in small: a front end with pooling, a dilated back end, a density map at a quarter of the resolution."""

import keras
import numpy as np
import tensorflow as tf
from keras.layers import (
    Activation,
    Add,
    BatchNormalization,
    Concatenate,
    Conv2D,
    Input,
    MaxPooling2D,
    Normalization,
)

MEAN = [110.0, 105.0, 98.0]
VAR = [45.0**2, 44.0**2, 46.0**2]
SCALES = ((2, 1.0), (4, 0.5), (8, 0.25))
LOG_EPS = np.float32(1.0)


def cbr(x, filters, rate, name):
    x = Conv2D(
        filters,
        3,
        padding="same",
        dilation_rate=rate,
        use_bias=False,
        kernel_initializer="he_normal",
        name=name,
    )(x)
    x = BatchNormalization(momentum=0.9, name=name + "_bn")(x)
    return Activation("relu", name=name + "_act")(x)


def build():
    inp = Input((32, 32, 3), name="image")
    x = Normalization(mean=MEAN, variance=VAR, name="normalise")(inp)
    x = Conv2D(8, 3, padding="same", activation="relu", name="front1")(x)
    x = Conv2D(8, 3, padding="same", activation="relu", name="front2")(x)
    x = MaxPooling2D(name="pool1")(x)
    x = cbr(x, 12, 1, "front3")
    x = MaxPooling2D(3, strides=2, padding="same", name="pool2")(x)
    a = cbr(x, 12, 2, "back1")
    b = cbr(a, 12, 3, "back2")
    x = Add(name="skip")([a, b])
    x = Concatenate(name="context")(
        [
            x,
            Conv2D(6, 3, padding="same", dilation_rate=4, activation="relu", name="wide")(x),
            Conv2D(6, 1, activation="relu", name="point")(x),
        ]
    )
    out = Conv2D(
        1, 1, activation="softplus", bias_initializer=keras.initializers.Constant(-1.5), name="density"
    )(x)
    return keras.Model(inp, out, name="crowd")


def loss(y_true, y_pred):
    per_cell = tf.reduce_sum(tf.square(y_pred - y_true), axis=(1, 2, 3))
    total = per_cell
    for k, w in SCALES:
        p = tf.nn.avg_pool2d(y_pred, k, k, "VALID") * float(k * k)
        t = tf.nn.avg_pool2d(y_true, k, k, "VALID") * float(k * k)
        d = tf.abs(tf.math.log(p + LOG_EPS) - tf.math.log(t + LOG_EPS))
        total += w * tf.reduce_mean(d, axis=(1, 2, 3))
    return total
