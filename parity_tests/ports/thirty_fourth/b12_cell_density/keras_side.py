"""Counts cells in micrographs by a density map: mobile inverted bottlenecks with squeeze-excitation and group norm."""

import keras
from keras import layers, ops

SIZE = 20


def norm(x, name):
    return layers.GroupNormalization(groups=4, name=name)(x)


def squeeze_excite(x, ratio, name):
    channels = x.shape[-1]
    s = layers.GlobalAveragePooling2D(keepdims=True, name=f"{name}_pool")(x)
    s = layers.Conv2D(channels // ratio, 1, activation="relu", name=f"{name}_squeeze")(s)
    s = layers.Conv2D(channels, 1, activation="sigmoid", name=f"{name}_excite")(s)
    return layers.Multiply(name=f"{name}_scale")([x, s])


def bottleneck(x, filters, stride, name, expand=3, kernel=3):
    y = layers.Conv2D(expand * x.shape[-1], 1, use_bias=False, name=f"{name}_expand")(x)
    y = layers.Activation("silu")(norm(y, f"{name}_norm1"))
    y = layers.DepthwiseConv2D(
        kernel, strides=stride, padding="same", use_bias=False, name=f"{name}_depthwise"
    )(y)
    y = layers.Activation("silu")(norm(y, f"{name}_norm2"))
    y = squeeze_excite(y, 4, f"{name}_se")
    y = norm(layers.Conv2D(filters, 1, use_bias=False, name=f"{name}_project")(y), f"{name}_norm3")
    return layers.Add(name=f"{name}_add")([x, y]) if stride == 1 and x.shape[-1] == filters else y


def build():
    image = keras.Input((SIZE, SIZE, 3), name="image")
    x = layers.Conv2D(8, 3, padding="same", use_bias=False, name="stem")(image)
    skip = layers.Activation("silu")(norm(x, "stem_norm"))
    x = bottleneck(skip, 16, 2, "down1")
    x = bottleneck(x, 16, 1, "same1", kernel=5)
    x = bottleneck(x, 24, 2, "down2", kernel=5)
    x = layers.UpSampling2D(4, name="up")(x)
    x = layers.Concatenate(name="join")([x, skip])
    x = layers.Conv2D(8, 3, padding="same", activation="relu", name="mix")(x)
    x = layers.Conv2D(1, 1, activation="softplus", name="density")(x)
    return keras.Model(image, layers.Reshape((SIZE, SIZE), name="map")(x), name="cell_density")


def density_loss(y_true, y_pred):
    pixel = ops.mean(ops.square(y_true - y_pred))
    count = ops.mean(ops.abs(ops.sum(y_true, axis=(1, 2)) - ops.sum(y_pred, axis=(1, 2))))
    return 100.0 * pixel + 0.02 * count
