"""Small EDSR-like x2 super-resolution network."""

import keras
import tensorflow as tf
from keras import layers, ops

SCALE = 2


@keras.saving.register_keras_serializable("sr")
class DepthToSpace(layers.Layer):
    def __init__(self, block, **kw):
        super().__init__(**kw)
        self.block = block

    def call(self, x):
        return tf.nn.depth_to_space(x, self.block)

    def compute_output_shape(self, s):
        b = self.block
        return (s[0], s[1] * b, s[2] * b, s[3] // (b * b))


def res_block(x, filters, i):
    h = layers.Conv2D(filters, 3, padding="same", activation="relu", name=f"b{i}_a")(x)
    h = layers.Conv2D(filters, 3, padding="same", name=f"b{i}_b")(h)
    return layers.Add()([x, 0.1 * h])


def build():
    lr_img = keras.Input((8, 8, 3), name="x")
    head = layers.Conv2D(16, 3, padding="same", name="head")(lr_img)
    h = head
    for i in range(2):
        h = res_block(h, 16, i)
    h = layers.Conv2D(16, 3, padding="same", name="body")(h)
    h = layers.Add()([h, head])
    h = layers.Conv2D(3 * SCALE**2, 3, padding="same", name="up")(h)
    h = DepthToSpace(SCALE)(h)
    base = layers.UpSampling2D(SCALE)(lr_img)
    return keras.Model(lr_img, layers.Add()([h, base]), name="edsr_tiny")


def charbonnier(y_true, y_pred):
    return ops.mean(ops.sqrt(ops.square(y_true - y_pred) + 1e-6))
