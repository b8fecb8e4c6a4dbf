"""Plate reader: convolutions, columns as time steps, a bidirectional LSTM, a class a column."""

import keras
from keras import layers


def conv_unit(x, filters, name):
    x = layers.Conv2D(filters, 3, padding="same", use_bias=False, name=name + "_conv")(x)
    x = layers.BatchNormalization(name=name + "_bn")(x)
    return layers.Activation("relu", name=name + "_relu")(x)


def build(height=16, width=24, classes=6):
    plate = keras.Input((height, width, 1), name="plate")
    x = conv_unit(plate, 6, "c1")
    x = layers.MaxPooling2D((2, 2), name="p1")(x)
    x = layers.DepthwiseConv2D(3, padding="same", use_bias=False, name="dw")(x)
    x = conv_unit(x, 8, "c2")
    x = layers.MaxPooling2D((2, 1), name="p2")(x)

    # (h, w, c) -> (w, h * c)
    x = layers.Permute((2, 1, 3), name="columns")(x)
    x = layers.Reshape((width // 2, (height // 4) * 8), name="steps")(x)
    x = layers.Dense(16, activation="relu", name="squeeze")(x)
    x = layers.Bidirectional(layers.LSTM(8, return_sequences=True), name="bilstm")(x)
    x = layers.TimeDistributed(layers.Dense(classes), name="letters")(x)
    return keras.Model(plate, x, name="plate_crnn")
