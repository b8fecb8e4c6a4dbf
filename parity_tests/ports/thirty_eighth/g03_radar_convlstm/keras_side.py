"""Rain radar nowcast: the next picture from five."""

import keras
import tensorflow as tf
from keras import layers, ops


def nowcast_loss(y_true, y_pred):
    """Half structural dissimilarity, half absolute error."""
    a, b = tf.expand_dims(y_true, -1), tf.expand_dims(y_pred, -1)
    ssim = tf.image.ssim(a, b, max_val=1.0, filter_size=7, filter_sigma=1.5)
    mae = tf.reduce_mean(tf.abs(y_true - y_pred), axis=[1, 2])
    return 0.5 * (1.0 - tf.cast(ssim, mae.dtype)) + 0.5 * mae


def build():
    keras.utils.set_random_seed(7)
    x = keras.Input((5, 12, 12, 1), name="x")
    h = layers.ConvLSTM2D(6, 3, padding="same", return_sequences=True, name="lstm1")(x)
    h = layers.LayerNormalization(epsilon=1e-5, name="ln")(h)
    h = layers.ConvLSTM2D(5, 3, padding="same", name="lstm2")(h)
    h = layers.Concatenate(name="skip")([h, layers.Lambda(lambda t: t[:, -1], name="last")(x)])
    h = layers.Conv2D(1, 1, activation="sigmoid", name="rain")(h)
    h = layers.Lambda(lambda t: ops.squeeze(t, -1), name="map")(h)
    return keras.Model(x, h)
