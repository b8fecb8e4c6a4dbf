"""Fault of a roller bearing from half a second of acceleration."""

import keras
import tensorflow as tf
from keras import layers, ops

FRAME, HOP, FFT = 48, 24, 64
CLASSES = 4


class LogSpectrogram(layers.Layer):
    def call(self, wave):
        spec = tf.abs(tf.signal.stft(wave, frame_length=FRAME, frame_step=HOP, fft_length=FFT))
        db = tf.math.log(spec + 1e-3)
        mean = tf.math.reduce_mean(db, axis=[1, 2], keepdims=True)
        std = tf.math.reduce_std(db, axis=[1, 2], keepdims=True)
        return tf.expand_dims((db - mean) / (std + 1e-5), -1)

    def compute_output_shape(self, shape):
        return (shape[0], 1 + (shape[1] - FRAME) // HOP, FFT // 2 + 1, 1)


class SmoothedCrossEntropy(keras.losses.Loss):
    def __init__(self, smoothing=0.1, name="smoothed_ce"):
        super().__init__(name=name)
        self.smoothing = smoothing

    def call(self, y_true, y_pred):
        onehot = ops.one_hot(ops.cast(ops.reshape(y_true, (-1,)), "int32"), CLASSES, dtype="float32")
        soft = onehot * (1.0 - self.smoothing) + self.smoothing / CLASSES
        return -ops.sum(ops.cast(soft, y_pred.dtype) * ops.log_softmax(y_pred, axis=-1), axis=-1)


loss = SmoothedCrossEntropy(0.1)


def build():
    keras.utils.set_random_seed(3)
    wave = keras.Input((512,), name="x")
    h = LogSpectrogram(name="logspec")(wave)
    h = layers.SeparableConv2D(8, 3, padding="same", depth_multiplier=4, name="sep1")(h)
    h = layers.BatchNormalization(momentum=0.9, name="bn1")(h)
    h = layers.PReLU(shared_axes=[1, 2], alpha_initializer=keras.initializers.Constant(0.25), name="prelu1")(
        h
    )
    h = layers.MaxPooling2D(2, name="pool")(h)  # 10 x 16
    h = layers.SeparableConv2D(
        16, 3, strides=2, padding="same", depth_multiplier=2, use_bias=False, name="sep2"
    )(h)
    h = layers.BatchNormalization(momentum=0.9, name="bn2")(h)
    h = layers.PReLU(shared_axes=[1, 2], alpha_initializer=keras.initializers.Constant(0.25), name="prelu2")(
        h
    )
    h = layers.GlobalAveragePooling2D(name="gap")(h)
    return keras.Model(wave, layers.Dense(CLASSES, name="fault")(h))
