"""Two resolutions side by side (HRNet): heat maps of key points, and which of them can be seen."""

import keras
from keras import layers


def convolution(x, filters, size, name, strides=1, activation=True):
    x = layers.Conv2D(filters, size, strides=strides, padding="same", use_bias=False, name=f"{name}_conv")(x)
    x = layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=f"{name}_bn")(x)
    return layers.ReLU(name=f"{name}_relu")(x) if activation else x


def basic_block(x, filters, name):
    y = convolution(x, filters, 3, f"{name}_a")
    y = convolution(y, filters, 3, f"{name}_b", activation=False)
    return layers.ReLU(name=f"{name}_out")(layers.Add(name=f"{name}_add")([x, y]))


def fuse(high, low, widths, name):
    up = convolution(low, widths[0], 1, f"{name}_up", activation=False)
    up = layers.UpSampling2D(2, name=f"{name}_upsample")(up)
    down = convolution(high, widths[1], 3, f"{name}_down", strides=2, activation=False)
    new_high = layers.ReLU(name=f"{name}_high")(layers.Add(name=f"{name}_high_add")([high, up]))
    new_low = layers.ReLU(name=f"{name}_low")(layers.Add(name=f"{name}_low_add")([down, low]))
    return new_high, new_low


def build(size=12, points=3, widths=(10, 16)):
    picture = keras.Input((size, size, 1), name="picture")
    x = convolution(picture, widths[0], 3, "stem")
    high = convolution(x, widths[0], 3, "branch_high")
    low = convolution(x, widths[1], 3, "branch_low", strides=2)
    for stage in range(2):
        high = basic_block(high, widths[0], f"stage_{stage}_high")
        low = basic_block(low, widths[1], f"stage_{stage}_low")
        high, low = fuse(high, low, widths, f"fuse_{stage}")
    together = layers.Concatenate(name="together")([high, layers.UpSampling2D(2, name="last_upsample")(low)])
    together = convolution(together, 20, 1, "head")
    heatmaps = layers.Conv2D(points, 1, name="heatmaps")(together)
    visible = layers.Dense(points, name="visible")(layers.GlobalMaxPooling2D(name="pool")(low))
    return keras.Model(picture, {"heatmaps": heatmaps, "visible": visible})
