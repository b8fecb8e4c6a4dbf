"""Gestures of the wrist from a 6-axis IMU: strided convolution, bidirectional GRU, L2 on the kernels."""

import keras
from keras import layers, regularizers

STEPS, AXES, GESTURES, L2 = 30, 6, 5, 2e-3


def build():
    inp = keras.Input((STEPS, AXES), name="imu")
    x = layers.Conv1D(
        16,
        3,
        strides=2,
        padding="valid",
        activation="relu",
        kernel_regularizer=regularizers.l2(L2),
        name="conv",
    )(inp)
    x = layers.Bidirectional(layers.GRU(12), name="bigru")(x)
    x = layers.Dense(16, activation="relu", kernel_regularizer=regularizers.l2(L2), name="fc")(x)
    out = layers.Dense(GESTURES, kernel_regularizer=regularizers.l2(L2), name="gesture")(x)
    return keras.Model(inp, out, name="gestures")


def optimizer():
    return keras.optimizers.SGD(learning_rate=0.05)
