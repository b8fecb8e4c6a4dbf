"""P / QRS / T wave segmentation of two-lead ECG strips."""

import numpy as np
import tensorflow as tf
from keras import Input, Model, Sequential, ops
from keras import layers as L

LENGTH, LEADS = 192, 2
CLASS_WEIGHTS = np.array([0.5, 2.0, 1.5, 1.0], dtype=np.float32)  # none, P, QRS, T
SMOOTH = np.float32(1.0)


def conv_block(width, name, dilation=1):
    return Sequential(
        [
            L.Conv1D(
                width,
                5,
                padding="same",
                dilation_rate=dilation,
                use_bias=False,
                kernel_initializer="he_normal",
                name=f"{name}_a",
            ),
            L.BatchNormalization(momentum=0.9, name=f"{name}_abn"),
            L.ReLU(),
            L.Conv1D(width, 3, padding="same", kernel_initializer="he_normal", name=f"{name}_b"),
            L.LeakyReLU(negative_slope=0.1),
        ],
        name=name,
    )


def build():
    inp = Input((LENGTH, LEADS), name="ecg")
    wander = L.AveragePooling1D(49, strides=1, padding="same", name="wander")(inp)
    x = L.Subtract(name="detrend")([inp, wander])
    e1 = conv_block(12, "enc1")(x)
    e2 = conv_block(16, "enc2")(L.MaxPooling1D(2)(e1))
    mid = conv_block(24, "mid", dilation=2)(L.MaxPooling1D(2)(e2))
    u2 = L.Conv1DTranspose(16, 2, strides=2, name="up2")(mid)
    d2 = conv_block(16, "dec2")(L.Concatenate()([u2, e2]))
    u1 = L.Conv1DTranspose(12, 2, strides=2, name="up1")(d2)
    d1 = conv_block(12, "dec1")(L.Concatenate()([u1, e1]))
    return Model(inp, L.Conv1D(4, 1, name="waves")(d1), name="ecg_unet")


def loss(y_true, logits):
    onehot = tf.one_hot(tf.cast(y_true, tf.int32), 4, dtype=logits.dtype)
    w = tf.cast(tf.constant(CLASS_WEIGHTS), logits.dtype)
    ce = tf.nn.softmax_cross_entropy_with_logits(onehot, logits) * tf.reduce_sum(onehot * w, -1)
    p = tf.nn.softmax(logits)
    inter = tf.reduce_sum(p * onehot, axis=1)
    total = tf.reduce_sum(p, axis=1) + tf.reduce_sum(onehot, axis=1)
    dice = (2.0 * inter + tf.cast(SMOOTH, p.dtype)) / (total + tf.cast(SMOOTH, p.dtype))
    return ops.mean(ce) + ops.mean(1.0 - dice[:, 1:])
