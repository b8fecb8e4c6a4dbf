"""Gestures in short clips by a residual network whose channels are shifted along time (TSM, Lin et al. 2019)."""

import keras
from keras import layers, ops

FRAMES, SIZE, GESTURES = 5, 12, 4


@keras.saving.register_keras_serializable()
class TemporalShift(layers.Layer):
    """An eighth of the channels comes from the next frame, an eighth from the one before."""

    def __init__(self, frames, share=8, **kwargs):
        super().__init__(**kwargs)
        self.frames, self.share = frames, share

    def call(self, x):
        height, width, channels = x.shape[1:]
        fold = channels // self.share
        x = ops.reshape(x, (-1, self.frames, height, width, channels))
        ahead = ops.pad(x[:, 1:, ..., :fold], [[0, 0], [0, 1], [0, 0], [0, 0], [0, 0]])
        behind = ops.pad(x[:, :-1, ..., fold : 2 * fold], [[0, 0], [1, 0], [0, 0], [0, 0], [0, 0]])
        x = ops.concatenate([ahead, behind, x[..., 2 * fold :]], axis=-1)
        return ops.reshape(x, (-1, height, width, channels))


def conv(x, filters, size, strides=1, relu=True):
    x = layers.Conv2D(
        filters, size, strides=strides, padding="same", use_bias=False, kernel_initializer="he_normal"
    )(x)
    x = layers.BatchNormalization(momentum=0.95, epsilon=1e-4)(x)
    return layers.ReLU(max_value=6.0)(x) if relu else x


def block(x, filters, strides):
    shortcut = x
    if strides > 1:
        shortcut = layers.AveragePooling2D(strides, padding="same")(x)
        shortcut = conv(shortcut, filters, 1, relu=False)
    x = TemporalShift(FRAMES)(x)
    x = conv(x, filters, 3, strides)
    x = conv(x, filters, 3, relu=False)
    return layers.ReLU()(layers.Add()([shortcut, x]))


def build():
    clip = keras.Input((FRAMES, SIZE, SIZE, 3), name="clip")
    x = layers.Rescaling(1 / 128, offset=-1)(clip)
    x = ops.reshape(x, (-1, SIZE, SIZE, 3))
    x = conv(x, 16, 3)
    x = block(x, 16, 1)
    x = block(x, 24, 2)
    x = layers.Dropout(0.3)(layers.GlobalAveragePooling2D()(x))
    x = layers.Dense(GESTURES)(x)
    # the frames of a clip agree on one answer
    return keras.Model(clip, ops.mean(ops.reshape(x, (-1, FRAMES, GESTURES)), axis=1))


def optimizer():
    rate = keras.optimizers.schedules.PiecewiseConstantDecay([7, 14], [0.0625, 0.015625, 0.00390625])
    return keras.optimizers.SGD(rate, momentum=0.875)
