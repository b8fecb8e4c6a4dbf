"""Onsets and frames: what is played on a piano, from a spectrogram of mels."""

import keras
from keras import layers, ops


class StopGradient(layers.Layer):
    def call(self, x):
        return ops.stop_gradient(x)


def acoustic(x, name):
    x = layers.Conv2D(6, 3, padding="same", activation="relu", name=name + "_conv1")(x)
    x = layers.MaxPooling2D((1, 2))(x)
    x = layers.Conv2D(8, 3, padding="same", activation="relu", name=name + "_conv2")(x)
    x = layers.MaxPooling2D((1, 2))(x)
    return layers.Reshape((12, 6 * 8))(x)


def build():
    spectrogram = keras.Input((12, 24, 1), name="spectrogram")
    x = acoustic(spectrogram, "onset")
    x = layers.Bidirectional(layers.LSTM(12, return_sequences=True), name="onset_lstm")(x)
    onset = layers.Dense(10, name="onset")(x)
    x = layers.Dense(10, activation="sigmoid", name="activation")(acoustic(spectrogram, "frame"))
    heard = layers.Activation("sigmoid", name="heard")(StopGradient()(onset))
    x = layers.Concatenate()([heard, x])
    x = layers.Bidirectional(layers.LSTM(10, return_sequences=True), name="frame_lstm")(x)
    frame = layers.Dense(10, name="frame")(x)
    return keras.Model(spectrogram, {"onset": onset, "frame": frame}, name="onsets_and_frames")
