"""Keyword spotting on 256 ms of 8 kHz audio: log-mel front end + DS-CNN."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

SR, FRAME, HOP, MELS, CLASSES = 8000, 256, 128, 24, 5


def mel_table(lo=60.0, hi=3800.0):
    def mel(f):
        return 1127.0 * np.log1p(f / 700.0)

    bins = mel(np.linspace(0.0, SR / 2, FRAME // 2 + 1))[:, None]
    edges = np.linspace(mel(lo), mel(hi), MELS + 2)
    left, mid, right = edges[:-2], edges[1:-1], edges[2:]
    w = np.maximum(0.0, np.minimum((bins - left) / (mid - left), (right - bins) / (right - mid)))
    w[0] = 0.0
    return w.astype("float32")


MEL = mel_table()


class LogMel(layers.Layer):
    def call(self, wave):
        spec = tf.abs(tf.signal.stft(wave, FRAME, HOP, fft_length=FRAME))
        mel = tf.tensordot(spec, tf.cast(tf.constant(MEL), spec.dtype), 1)
        x = tf.math.log(mel + 1e-2)
        return (x - tf.reduce_mean(x, axis=1, keepdims=True))[..., None]


def ds_block(x, filters, stride, name):
    if stride > 1:
        x = layers.ZeroPadding2D(1)(x)
    x = layers.DepthwiseConv2D(
        3, strides=stride, padding="valid" if stride > 1 else "same", use_bias=False, name=name + "_dw"
    )(x)
    x = layers.BatchNormalization(name=name + "_dwbn")(x)
    x = layers.ReLU()(x)
    x = layers.Conv2D(filters, 1, use_bias=False, name=name + "_pw")(x)
    x = layers.BatchNormalization(name=name + "_pwbn")(x)
    return layers.ReLU()(x)


def build():
    wave = keras.Input((2048,), name="wave")
    x = LogMel(name="logmel")(wave)
    x = layers.Conv2D(12, (5, 3), padding="same", use_bias=False, name="stem")(x)
    x = layers.BatchNormalization(name="stem_bn")(x)
    x = layers.ReLU()(x)
    x = ds_block(x, 16, 2, "b1")
    x = ds_block(x, 24, 1, "b2")
    x = layers.Concatenate()([layers.GlobalAveragePooling2D()(x), layers.GlobalMaxPooling2D()(x)])
    x = layers.Dense(32, activation="relu", name="fc")(x)
    return keras.Model(wave, layers.Dense(CLASSES, name="logits")(x))
