"""MLP-Mixer on small chest radiographs: five findings (-1: not read) and, from an early block, the view."""

import keras
import tensorflow as tf
from keras import layers as L

SHAPE, PATCH, DIM, BLOCKS = (40, 32, 1), 8, 32, 3
TOKENS = (SHAPE[0] // PATCH) * (SHAPE[1] // PATCH)
POS_WEIGHT = tf.constant([2.0, 1.0, 3.0, 1.5, 4.0])


class MixerBlock(L.Layer):
    def __init__(self, token_hidden, channel_hidden, **kwargs):
        super().__init__(**kwargs)
        self.ln1, self.ln2 = L.LayerNormalization(epsilon=1e-6), L.LayerNormalization(epsilon=1e-6)
        self.tok1, self.tok2 = L.Dense(token_hidden, activation="gelu"), L.Dense(TOKENS)
        self.ch1, self.ch2 = L.Dense(channel_hidden, activation="gelu"), L.Dense(DIM)
        self.swap = L.Permute((2, 1))

    def call(self, x):
        x = x + self.swap(self.tok2(self.tok1(self.swap(self.ln1(x)))))
        return x + self.ch2(self.ch1(self.ln2(x)))


def build():
    image = keras.Input(SHAPE, name="image")
    x = L.Rescaling(1 / 0.25, offset=-2.0)(image)
    x = L.Conv2D(DIM, PATCH, strides=PATCH, name="patches")(x)
    x = L.Reshape((TOKENS, DIM))(x)
    for i in range(BLOCKS):
        x = MixerBlock(16, 64, name=f"mixer{i}")(x)
        if i == 0:
            early = L.GlobalAveragePooling1D()(x)
    view = L.Dense(16, activation="relu", name="view_hidden")(early)
    view = L.Dense(3, name="view")(view)
    x = L.LayerNormalization(epsilon=1e-6, name="final_norm")(x)
    x = L.GlobalAveragePooling1D()(x)
    return keras.Model(image, {"findings": L.Dense(5, name="findings")(x), "view": view}, name="mixer_cxr")


def findings_loss(y_true, y_pred):
    read = tf.cast(y_true >= 0, y_pred.dtype)
    ce = tf.nn.weighted_cross_entropy_with_logits(tf.maximum(y_true, 0.0), y_pred, POS_WEIGHT)
    return tf.math.divide_no_nan(tf.reduce_sum(read * ce, -1), tf.reduce_sum(read, -1))


def view_loss(y_true, y_pred):
    return keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
