"""Broadcasted-residual network that names the frog species of a log-mel clip (24 mels, 20 frames)."""

import keras
from keras import layers, ops

BANDS = 3
STAGES = ((8, 2, False), (12, 2, True), (16, 2, False))  # channels, blocks, halve the frequencies
SPECIES = 6


@keras.saving.register_keras_serializable()
class SubSpectralNorm(layers.Layer):
    """Batch normalisation with statistics and affine of each sub-band of frequencies."""

    def __init__(self, bands, **kwargs):
        super().__init__(**kwargs)
        self.bands = bands
        self.norm = layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name="bn")

    def build(self, shape):
        _, f, t, c = shape
        self.norm.build((None, f // self.bands, t, self.bands * c))
        self.built = True

    def call(self, x, training=None):
        _, f, t, c = x.shape
        s = self.bands
        x = ops.reshape(x, (-1, s, f // s, t, c))
        x = ops.transpose(x, (0, 2, 3, 1, 4))
        x = self.norm(ops.reshape(x, (-1, f // s, t, s * c)), training=training)
        x = ops.transpose(ops.reshape(x, (-1, f // s, t, s, c)), (0, 3, 1, 2, 4))
        return ops.reshape(x, (-1, f, t, c))


def bn(name):
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=name)


def bc_block(x, channels, dilation, change, halve, name):
    shortcut = x
    if change:
        x = layers.Conv2D(channels, 1, use_bias=False, name=f"{name}_expand")(x)
        x = bn(f"{name}_expand_bn")(x)
        x = layers.Activation("relu")(x)
        if halve:
            x = layers.AveragePooling2D((2, 1))(x)
    x = layers.DepthwiseConv2D((3, 1), padding="same", use_bias=False, name=f"{name}_freq")(x)
    f2 = SubSpectralNorm(BANDS, name=f"{name}_ssn")(x)

    t = layers.Lambda(lambda z: ops.mean(z, axis=1, keepdims=True), name=f"{name}_pool")(f2)
    t = layers.DepthwiseConv2D(
        (1, 3), padding="same", dilation_rate=(1, dilation), use_bias=False, name=f"{name}_time"
    )(t)
    t = bn(f"{name}_time_bn")(t)
    t = layers.Activation("swish")(t)
    t = layers.Conv2D(channels, 1, name=f"{name}_point")(t)
    t = layers.Dropout(0.1, name=f"{name}_drop")(t)

    y = layers.Add()([f2, t])
    if not change:
        y = layers.Add()([y, shortcut])
    return layers.Activation("relu")(y)


def build():
    clip = keras.Input((24, 20), name="clip")
    x = layers.Reshape((24, 20, 1))(clip)
    x = layers.Conv2D(8, 5, strides=(2, 1), padding="same", use_bias=False, name="stem")(x)
    x = bn("stem_bn")(x)
    x = layers.Activation("relu")(x)
    for i, (channels, blocks, halve) in enumerate(STAGES):
        for j in range(blocks):
            x = bc_block(x, channels, 2**i, j == 0, halve and j == 0, f"s{i}b{j}")
    x = layers.DepthwiseConv2D(3, use_bias=False, name="tail_dw")(x)
    x = layers.Conv2D(24, 1, name="tail_pw")(x)
    x = layers.Activation("relu")(x)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dropout(0.2, name="tail_drop")(x)
    return keras.Model(clip, layers.Dense(SPECIES, name="species")(x), name="frogs")
