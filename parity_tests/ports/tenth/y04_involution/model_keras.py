"""RedNet in miniature: involutions, whose kernels are made from the pixel and shared by the channels of a group."""

import keras
from keras import layers, ops


class Involution2D(layers.Layer):
    def __init__(self, channels, kernel_size=3, groups=4, reduction=2, **kwargs):
        super().__init__(**kwargs)
        self.channels, self.kernel_size, self.groups = channels, kernel_size, groups
        self.reduce = layers.Conv2D(channels // reduction, 1, use_bias=False, name="reduce")
        self.norm = layers.BatchNormalization(momentum=0.9, name="norm")
        self.span = layers.Conv2D(kernel_size**2 * groups, 1, name="span")

    def call(self, x, training=None):
        k, g = self.kernel_size, self.groups
        height, width = x.shape[1], x.shape[2]
        kernel = self.span(ops.relu(self.norm(self.reduce(x), training=training)))
        kernel = ops.reshape(kernel, (-1, height, width, k * k, g, 1))

        margin = k // 2
        padded = ops.pad(x, ((0, 0), (margin, margin), (margin, margin), (0, 0)))
        shifted = [padded[:, i : i + height, j : j + width] for i in range(k) for j in range(k)]
        patches = ops.stack(shifted, axis=3)
        patches = ops.reshape(patches, (-1, height, width, k * k, g, self.channels // g))
        return ops.reshape(ops.sum(kernel * patches, axis=3), (-1, height, width, self.channels))


def bottleneck(x, channels, name):
    y = layers.Conv2D(channels, 1, use_bias=False, name=f"{name}_in")(x)
    y = layers.ReLU()(layers.BatchNormalization(momentum=0.9, name=f"{name}_bn1")(y))
    y = Involution2D(channels, name=f"{name}_involution")(y)
    y = layers.ReLU()(layers.BatchNormalization(momentum=0.9, name=f"{name}_bn2")(y))
    y = layers.Conv2D(x.shape[-1], 1, use_bias=False, name=f"{name}_out")(y)
    y = layers.BatchNormalization(momentum=0.9, name=f"{name}_bn3")(y)
    return layers.ReLU()(layers.Add()([x, y]))


def build():
    inputs = keras.Input((8, 8, 1), name="x")
    x = layers.Conv2D(24, 3, padding="same", use_bias=False, name="stem")(inputs)
    x = layers.ReLU()(layers.BatchNormalization(momentum=0.9, name="stem_bn")(x))
    x = bottleneck(x, 16, "block1")
    x = layers.MaxPooling2D(2)(x)
    x = bottleneck(x, 16, "block2")
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dropout(0.2)(x)
    return keras.Model(inputs, layers.Dense(10, name="classes")(x))
