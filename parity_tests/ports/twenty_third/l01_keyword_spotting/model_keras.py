"""DS-CNN keyword spotter (small footprint variant) on MFCC patches.

Input: 24 frames x 10 coefficients x 1 channel, output: logits of 8 keywords.
"""

import keras
from keras import layers

N_FRAMES, N_COEFF, N_WORDS = 24, 10, 8


def conv_bn_relu(x, filters, kernel, strides, name):
    x = layers.Conv2D(filters, kernel, strides=strides, padding="same", use_bias=False, name=name)(x)
    x = layers.BatchNormalization(momentum=0.9, name=name + "_bn")(x)
    return layers.ReLU(name=name + "_relu")(x)


def squeeze_excite(x, reduced, name):
    """Channel gate computed from the globally pooled map."""
    channels = x.shape[-1]
    s = layers.GlobalAveragePooling2D(keepdims=True, name=name + "_pool")(x)
    s = layers.Dense(reduced, activation="relu", name=name + "_reduce")(s)
    s = layers.Dense(channels, activation="hard_sigmoid", name=name + "_expand")(s)
    return layers.Multiply(name=name + "_scale")([x, s])


def ds_block(x, filters, strides, name, se=0):
    x = layers.DepthwiseConv2D(3, strides=strides, padding="same", use_bias=False, name=name + "_dw")(x)
    x = layers.BatchNormalization(momentum=0.9, name=name + "_dw_bn")(x)
    x = layers.ReLU(name=name + "_dw_relu")(x)
    x = conv_bn_relu(x, filters, 1, 1, name + "_pw")
    if se:
        x = squeeze_excite(x, se, name + "_se")
    return x


def build():
    mfcc = keras.Input((N_FRAMES, N_COEFF, 1), name="mfcc")
    x = conv_bn_relu(mfcc, 12, (5, 3), 2, "stem")
    x = ds_block(x, 16, 1, "block1")
    x = ds_block(x, 20, 2, "block2", se=5)
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    logits = layers.Dense(N_WORDS, name="classifier")(x)
    return keras.Model(mfcc, logits, name="ds_cnn")
