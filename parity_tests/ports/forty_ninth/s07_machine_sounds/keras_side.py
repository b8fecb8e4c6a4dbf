"""State of a fan from a quarter of a second of sound at 8 kHz: log-mel front end and a small CNN."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

RATE, FRAME, HOP, MELS = 8000, 256, 128, 20
TOP_DB = 45.0
STATES = 5


def mel_table():
    def to_mel(f):
        return 2595.0 * np.log10(1.0 + f / 700.0)

    def to_hz(m):
        return 700.0 * (10.0 ** (m / 2595.0) - 1.0)

    edges = to_hz(np.linspace(to_mel(60.0), to_mel(RATE / 2), MELS + 2))
    bins = np.arange(FRAME // 2 + 1) * RATE / FRAME
    rise = (bins[:, None] - edges[None, :-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[None, 2:] - bins[:, None]) / (edges[2:] - edges[1:-1])
    return np.maximum(0.0, np.minimum(rise, fall)).astype(np.float32)


class LogMel(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.window = np.hanning(FRAME).astype(np.float32)
        self.table = mel_table()

    def call(self, wave):
        frames = tf.signal.frame(wave, FRAME, HOP) * tf.cast(self.window, wave.dtype)
        power = tf.square(tf.abs(tf.signal.rfft(frames)))
        mel = tf.maximum(tf.matmul(power, tf.cast(self.table, wave.dtype)), 1e-10)
        db = 10.0 * tf.math.log(mel) / np.log(10.0)
        loudest = tf.reduce_max(db, axis=[1, 2], keepdims=True)
        db = tf.maximum(db, loudest - TOP_DB)
        return (db / 20.0)[..., tf.newaxis]


class Block(layers.Layer):
    def __init__(self, filters, **kwargs):
        super().__init__(**kwargs)
        self.conv1 = layers.Conv2D(filters, 3, padding="same", use_bias=False)
        self.bn1 = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)
        self.conv2 = layers.Conv2D(filters, 3, padding="same", use_bias=False)
        self.bn2 = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)
        self.pool = layers.AveragePooling2D(2)

    def call(self, x, training=None):
        x = tf.nn.relu(self.bn1(self.conv1(x), training=training))
        x = tf.nn.relu(self.bn2(self.conv2(x), training=training))
        return self.pool(x)


class FanListener(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.front = LogMel()
        self.block1 = Block(8)
        self.block2 = Block(16)
        self.fc = layers.Dense(32, activation="relu")
        self.state = layers.Dense(STATES)

    def call(self, wave, training=None):
        x = self.front(wave)
        x = self.block1(x, training=training)
        x = self.block2(x, training=training)
        x = tf.reduce_mean(x, axis=2)
        x = tf.reduce_max(x, axis=1) + tf.reduce_mean(x, axis=1)
        return self.state(self.fc(x))


def build():
    model = FanListener()
    model(np.zeros((1, 2048), np.float32))
    return model
