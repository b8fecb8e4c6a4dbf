"""Face embedding trained with an additive angular margin. The label is an input, since the margin needs it."""

import math

import keras
from keras import layers, ops


class GroupNorm(layers.GroupNormalization):
    def __init__(self, **kwargs):
        super().__init__(groups=4, epsilon=1e-5, **kwargs)


class ArcMargin(layers.Layer):
    def __init__(self, classes, scale=16.0, margin=0.3, **kwargs):
        super().__init__(**kwargs)
        self.classes, self.scale, self.margin = classes, scale, margin

    def build(self, shape, *_):
        self.kernel = self.add_weight(
            shape=(shape[-1], self.classes), initializer="glorot_uniform", name="kernel"
        )

    def call(self, x, label):
        cosine = ops.matmul(ops.normalize(x, axis=-1), ops.normalize(self.kernel, axis=0))
        sine = ops.sqrt(ops.clip(1 - ops.square(cosine), 1e-9, 1))
        moved = cosine * math.cos(self.margin) - sine * math.sin(self.margin)
        # beyond pi - margin the cosine would rise again
        moved = ops.where(
            cosine > math.cos(math.pi - self.margin),
            moved,
            cosine - math.sin(math.pi - self.margin) * self.margin,
        )
        own = ops.one_hot(label, self.classes, dtype="bool")
        return self.scale * ops.where(own, moved, cosine)


def residual(x, filters, stride):
    shortcut = x
    y = GroupNorm()(x)
    y = layers.Conv2D(filters, 3, padding="same", use_bias=False)(y)
    y = layers.PReLU(shared_axes=[1, 2])(GroupNorm()(y))
    y = layers.ZeroPadding2D(1)(y)
    y = layers.Conv2D(filters, 3, strides=stride, use_bias=False)(y)
    y = GroupNorm()(y)
    if stride > 1:
        shortcut = GroupNorm()(layers.Conv2D(filters, 1, strides=stride, use_bias=False)(x))
    return layers.Add()([y, shortcut])


def build(classes=12):
    face = keras.Input((16, 16, 1), name="face")
    label = keras.Input((), dtype="int32", name="label")
    x = layers.Conv2D(8, 3, padding="same", use_bias=False)(face)
    x = layers.PReLU(shared_axes=[1, 2])(GroupNorm()(x))
    x = residual(x, 8, 1)
    x = residual(x, 16, 2)
    x = residual(x, 16, 2)
    # a global depthwise convolution instead of pooling
    x = layers.DepthwiseConv2D(4, use_bias=False)(GroupNorm()(x))
    x = layers.Dense(16, use_bias=False, name="embedding")(layers.Flatten()(x))
    return keras.Model([face, label], ArcMargin(classes, name="margin")(x, label))
