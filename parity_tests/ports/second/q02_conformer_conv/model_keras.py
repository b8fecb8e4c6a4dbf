"""Keyword spotting with the convolution module of the Conformer between two half-step feed-forward modules."""

import keras
from keras import layers


def feed_forward(x, dim, name):
    y = layers.LayerNormalization(epsilon=1e-5, name=name + "_norm")(x)
    y = layers.Dense(4 * dim, activation="swish", name=name + "_expand")(y)
    y = layers.Dense(dim, name=name + "_project")(y)
    y = layers.Rescaling(0.5, name=name + "_half")(y)
    return layers.Add(name=name + "_add")([x, y])


def conv_module(x, dim, kernel, name="conv"):
    y = layers.LayerNormalization(epsilon=1e-5, name=name + "_norm")(x)
    y = layers.Conv1D(2 * dim, 1, name=name + "_pointwise1")(y)
    value, gate = y[..., :dim], y[..., dim:]
    gate = layers.Activation("sigmoid", name=name + "_gate")(gate)
    y = layers.Multiply(name=name + "_glu")([value, gate])
    y = layers.DepthwiseConv1D(kernel, padding="same", name=name + "_depthwise")(y)
    y = layers.BatchNormalization(name=name + "_bn")(y)
    y = layers.Activation("swish", name=name + "_swish")(y)
    y = layers.Conv1D(dim, 1, name=name + "_pointwise2")(y)
    return layers.Add(name=name + "_add")([x, y])


def build(dim=24, classes=6):
    inputs = keras.Input((20, 12), name="x")
    x = layers.Dense(dim, name="subsample")(inputs)
    x = feed_forward(x, dim, "ffn1")
    x = conv_module(x, dim, 5)
    x = feed_forward(x, dim, "ffn2")
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(x)
    x = layers.GlobalAveragePooling1D(name="pool")(x)
    return keras.Model(inputs, layers.Dense(classes, name="logits")(x))
