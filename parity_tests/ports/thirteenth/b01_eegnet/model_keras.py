"""EEGNet for imagined movements: 6 electrodes, 64 samples, 4 classes."""

import keras
from keras import layers, regularizers


def build(electrodes=6, samples=64, classes=4, f1=4, depth=2, f2=6):
    eeg = keras.Input((electrodes, samples, 1), name="eeg")
    x = layers.Conv2D(f1, (1, 16), padding="same", use_bias=False, name="temporal")(eeg)
    x = layers.BatchNormalization(name="temporal_norm")(x)
    x = layers.DepthwiseConv2D((electrodes, 1), depth_multiplier=depth, use_bias=False, name="spatial")(x)
    x = layers.BatchNormalization(name="spatial_norm")(x)
    x = layers.Activation("elu")(x)
    x = layers.AveragePooling2D((1, 4))(x)
    x = layers.Dropout(0.25)(x)
    x = layers.SeparableConv2D(f2, (1, 8), padding="same", use_bias=False, name="separable")(x)
    x = layers.BatchNormalization(name="separable_norm")(x)
    x = layers.Activation("elu")(x)
    x = layers.AveragePooling2D((1, 4))(x)
    x = layers.Dropout(0.25)(x)
    x = layers.Flatten()(x)
    logits = layers.Dense(classes, kernel_regularizer=regularizers.L2(1 / 64), name="logits")(x)
    return keras.Model(eeg, logits, name="eegnet")


def optimizer():
    return keras.optimizers.SGD(1 / 16, momentum=0.875, nesterov=True)
