"""EEGNet for four-class motor imagery (8 electrodes, 62 samples)."""

import keras
from keras import layers

CHANS, SAMPLES, CLASSES = 8, 62, 4
F1, D, F2 = 4, 2, 8


def build():
    x = keras.Input((CHANS, SAMPLES, 1), name="x")
    h = layers.Conv2D(F1, (1, 16), padding="same", use_bias=False, name="temporal")(x)
    h = layers.BatchNormalization(name="bn1")(h)
    h = layers.DepthwiseConv2D((CHANS, 1), depth_multiplier=D, use_bias=False, name="spatial")(h)
    h = layers.BatchNormalization(name="bn2")(h)
    h = layers.Activation("elu")(h)
    h = layers.AveragePooling2D((1, 4), padding="same")(h)
    h = layers.Dropout(0.25)(h)
    h = layers.SeparableConv2D(F2, (1, 8), padding="same", use_bias=False, name="separable")(h)
    h = layers.BatchNormalization(name="bn3")(h)
    h = layers.Activation("elu")(h)
    h = layers.AveragePooling2D((1, 4), padding="same")(h)
    h = layers.Flatten()(h)
    return keras.Model(x, layers.Dense(CLASSES, name="logits")(h), name="eegnet")
