"""Load forecast: a WaveNet of the last 32 hours for the next 6."""

import keras
from keras import layers


def build():
    history = keras.Input((32, 3), name="history")
    x = layers.Conv1D(16, 1)(history)
    skips = []
    for dilation in (1, 2, 4, 8):
        filtered = layers.Conv1D(16, 2, padding="causal", dilation_rate=dilation, activation="tanh")(x)
        gate = layers.Conv1D(16, 2, padding="causal", dilation_rate=dilation, activation="sigmoid")(x)
        z = layers.Multiply()([filtered, gate])
        skips.append(layers.Conv1D(12, 1)(z))
        x = layers.Add()([x, layers.Conv1D(16, 1)(z)])
    y = layers.ReLU()(layers.Add()(skips))
    y = layers.Conv1D(12, 1, activation="relu")(y)
    y = layers.Lambda(lambda t: t[:, -1])(y)
    return keras.Model(history, layers.Dense(6)(y))
