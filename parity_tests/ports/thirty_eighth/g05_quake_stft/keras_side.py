"""When the P wave arrives in a three-component seismogram."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

FRAME, STEP, NFFT = 48, 16, 64
FRAMES = 1 + (384 - FRAME) // STEP
CENTRES = ((np.arange(FRAMES) * STEP + FRAME / 2) / 384.0).astype(np.float32)


@tf.function
def spectrogram(x):
    x = tf.transpose(x, (0, 2, 1))
    s = tf.signal.stft(x, FRAME, STEP, NFFT, window_fn=tf.signal.hann_window)
    power = tf.square(tf.math.real(s)) + tf.square(tf.math.imag(s))
    return tf.transpose(tf.math.log1p(power), (0, 2, 3, 1))  # frames, frequencies, components


class ExpectedTime(layers.Layer):
    """Soft arg-max over the frames."""

    def build(self, shape):
        self.sharpness = self.add_weight(
            shape=(), initializer=keras.initializers.Constant(2.0), name="sharpness"
        )
        self.offset = self.add_weight(shape=(), initializer="zeros", name="offset")

    def call(self, score):
        p = tf.nn.softmax(self.sharpness * score, axis=1)
        return tf.reduce_sum(p * tf.cast(tf.constant(CENTRES), p.dtype), axis=1, keepdims=True) + self.offset


loss = keras.losses.Huber(delta=0.1)


def build():
    keras.utils.set_random_seed(11)
    x = keras.Input((384, 3), name="x")
    h = layers.Lambda(spectrogram, output_shape=(FRAMES, NFFT // 2 + 1, 3), name="spec")(x)
    h = layers.Conv2D(8, (3, 5), padding="same", activation="elu", name="conv1")(h)
    h = layers.MaxPooling2D((1, 4), name="pool1")(h)  # 22 x 8
    h = layers.GroupNormalization(4, epsilon=1e-5, name="gn")(h)
    h = layers.Conv2D(12, 3, padding="same", activation="elu", name="conv2")(h)
    h = layers.Reshape((FRAMES, 8 * 12), name="merge")(h)
    h = layers.TimeDistributed(layers.Dense(16, activation="tanh"), name="frame")(h)
    h = layers.Conv1D(1, 3, padding="same", name="score")(h)
    h = layers.Flatten(name="flat")(h)
    return keras.Model(x, ExpectedTime(name="arrival")(h))
