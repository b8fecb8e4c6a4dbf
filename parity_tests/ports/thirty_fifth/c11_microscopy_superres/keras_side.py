"""Super-resolution (x2) of fluorescence microscopy frames, two channels: learned residual over an upsampled frame."""

import keras
from keras import layers, ops

SIZE, FILTERS = 10, 16


def residual(x, name):
    y = layers.Conv2D(FILTERS, 3, padding="same", name=f"{name}_conv1")(x)
    y = layers.PReLU(
        shared_axes=[1, 2], alpha_initializer=keras.initializers.Constant(0.25), name=f"{name}_prelu"
    )(y)
    y = layers.Conv2D(FILTERS, 3, padding="same", name=f"{name}_conv2")(y)
    y = layers.Rescaling(0.125, name=f"{name}_scale")(y)
    return layers.Add(name=f"{name}_add")([x, y])


def build():
    low = keras.Input((SIZE, SIZE, 2), name="low")
    x = layers.Conv2D(FILTERS, 3, padding="same", name="head")(low)
    for i in range(2):
        x = residual(x, f"res{i}")
    x = layers.Conv2DTranspose(8, 4, strides=2, padding="same", activation="relu", name="up")(x)
    x = layers.Conv2D(2, 3, padding="same", name="tail")(x)
    base = layers.UpSampling2D(2, interpolation="bilinear", name="base")(low)
    out = layers.Add(name="high")([x, base])
    return keras.Model(low, out, name="superres")


def charbonnier(y_true, y_pred, eps=0.05):
    return ops.mean(ops.sqrt(ops.square(y_true - y_pred) + eps**2))
