"""Sleep staging after DeepSleepNet: two convolutional branches an epoch, a bidirectional LSTM over epochs."""

import keras
from keras import layers, ops, regularizers

EPOCHS, SAMPLES, STAGES = 4, 100, 5


def conv_bn(x, filters, size, stride=1, decay=None):
    x = layers.Conv1D(
        filters, size, strides=stride, padding="same", use_bias=False, kernel_regularizer=decay
    )(x)
    x = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x)
    return layers.Activation("relu")(x)


def branch(x, first, stride, pool, size):
    x = conv_bn(x, 8, first, stride, regularizers.L2(1e-3))
    x = layers.MaxPooling1D(pool, padding="same")(x)
    x = layers.Dropout(0.5)(x)
    x = conv_bn(x, 12, size)
    x = conv_bn(x, 12, size)
    x = layers.MaxPooling1D(2, padding="same")(x)
    return layers.Flatten()(x)


def features():
    signal = keras.Input((SAMPLES, 1))
    x = layers.Concatenate()([branch(signal, 12, 3, 4, 5), branch(signal, 40, 7, 2, 3)])
    return keras.Model(signal, layers.Dropout(0.5)(x), name="features")


def build():
    eeg = keras.Input((EPOCHS, SAMPLES, 1), name="eeg")
    x = features()(ops.reshape(eeg, (-1, SAMPLES, 1)))
    x = ops.reshape(x, (-1, EPOCHS, x.shape[-1]))
    shortcut = layers.Dense(24, name="shortcut")(x)
    x = layers.Bidirectional(layers.LSTM(12, return_sequences=True), name="sequence")(x)
    x = layers.Dropout(0.5)(layers.Add()([x, layers.Activation("relu")(shortcut)]))
    return keras.Model(eeg, layers.Dense(STAGES, name="stages")(x))


def optimizer():
    return keras.optimizers.SGD(0.02, momentum=0.9, nesterov=True)
