"""Keyword spotting on log-mel frames: separable convolutions over time with squeeze and excitation."""

import keras
from keras import layers

FRAMES, MELS, WORDS = 40, 20, 8


def excite(x, name):
    channels = x.shape[-1]
    s = layers.GlobalAveragePooling1D(keepdims=True, name=f"{name}_squeeze")(x)
    s = layers.Dense(channels // 4, activation="silu", name=f"{name}_reduce")(s)
    s = layers.Dense(channels, activation="sigmoid", name=f"{name}_expand")(s)
    return layers.Multiply(name=f"{name}_scale")([x, s])


def block(x, filters, size, stride, dilation, name):
    shortcut = x
    y = layers.SeparableConv1D(
        filters,
        size,
        strides=stride,
        dilation_rate=dilation,
        padding="same",
        use_bias=False,
        name=f"{name}_conv",
    )(x)
    y = layers.BatchNormalization(momentum=0.95, name=f"{name}_norm")(y)
    y = layers.Activation("silu", name=f"{name}_act")(y)
    y = excite(y, f"{name}_se")
    y = layers.SpatialDropout1D(0.1, name=f"{name}_drop")(y)
    if stride > 1 or shortcut.shape[-1] != filters:
        shortcut = layers.Conv1D(filters, 1, strides=stride, name=f"{name}_skip")(shortcut)
    return layers.Add(name=f"{name}_add")([y, shortcut])


def build():
    mel = keras.Input((FRAMES, MELS), name="mel")
    x = layers.Conv1D(24, 5, padding="same", use_bias=False, name="stem")(mel)
    x = layers.BatchNormalization(momentum=0.95, name="stem_norm")(x)
    x = layers.Activation("silu", name="stem_act")(x)
    x = block(x, 32, 4, 2, 1, "b1")
    x = block(x, 32, 3, 1, 2, "b2")
    x = block(x, 48, 5, 2, 1, "b3")
    x = layers.GlobalMaxPooling1D(name="pool")(x)
    x = layers.Dropout(0.2, name="drop")(x)
    return keras.Model(mel, layers.Dense(WORDS, name="words")(x), name="kws")
