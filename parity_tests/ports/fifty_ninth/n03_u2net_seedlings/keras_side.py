"""A small U2-Net that finds seedlings in grey top views, with supervised side outputs."""

import keras
from keras import layers, ops

SIZE = 24
SIDE_WEIGHTS = (1.0, 0.8, 0.6, 0.4)


def conv_bn(x, filters, name, rate=1):
    x = layers.Conv2D(filters, 3, padding="same", dilation_rate=rate, use_bias=False, name=f"{name}_conv")(x)
    x = layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=f"{name}_bn")(x)
    return layers.ReLU(name=f"{name}_relu")(x)


class Double(layers.Layer):
    """Twice the rows and columns, bilinear between the centres of the pixels, and edges repeated."""

    def along(self, x, axis):
        x = ops.moveaxis(x, axis, 1)
        before = ops.concatenate([x[:, :1], x[:, :-1]], axis=1)
        after = ops.concatenate([x[:, 1:], x[:, -1:]], axis=1)
        x = ops.stack([0.75 * x + 0.25 * before, 0.75 * x + 0.25 * after], axis=2)
        x = ops.reshape(x, (-1, 2 * x.shape[1], *x.shape[3:]))
        return ops.moveaxis(x, 1, axis)

    def call(self, x):
        return self.along(self.along(x, 1), 2)


def up(x):
    return Double()(x)


def rsu(x, depth, mid, out, name):
    """A residual U block: depth - 1 resolutions, and a dilated convolution at the bottom."""
    entry = conv_bn(x, out, f"{name}_in")
    x = entry
    skips = []
    for i in range(depth - 1):
        if i:
            x = layers.MaxPooling2D(2)(x)
        x = conv_bn(x, mid, f"{name}_enc{i}")
        skips.append(x)
    x = conv_bn(x, mid, f"{name}_bottom", rate=2)
    for i in reversed(range(depth - 1)):
        if i < depth - 2:
            x = up(x)
        x = layers.Concatenate()([x, skips[i]])
        x = conv_bn(x, mid if i else out, f"{name}_dec{i}")
    return layers.Add(name=f"{name}_sum")([x, entry])


def rsu_flat(x, mid, out, name):
    """The same without any pooling, with growing dilations."""
    entry = conv_bn(x, out, f"{name}_in")
    a = conv_bn(entry, mid, f"{name}_a", 1)
    b = conv_bn(a, mid, f"{name}_b", 2)
    c = conv_bn(b, mid, f"{name}_c", 4)
    x = conv_bn(layers.Concatenate()([c, b]), mid, f"{name}_d", 2)
    x = conv_bn(layers.Concatenate()([x, a]), out, f"{name}_e", 1)
    return layers.Add(name=f"{name}_sum")([x, entry])


def build():
    view = keras.Input((SIZE, SIZE), name="view")
    x = layers.Reshape((SIZE, SIZE, 1))(view)
    s1 = rsu(x, 4, 4, 8, "stage1")
    s2 = rsu(layers.MaxPooling2D(2)(s1), 3, 4, 8, "stage2")
    s3 = rsu_flat(layers.MaxPooling2D(2)(s2), 4, 8, "stage3")
    d2 = rsu(layers.Concatenate()([up(s3), s2]), 3, 4, 8, "stage2d")
    d1 = rsu(layers.Concatenate()([up(d2), s1]), 4, 4, 8, "stage1d")

    side1 = layers.Conv2D(1, 3, padding="same", name="side1")(d1)
    side2 = up(layers.Conv2D(1, 3, padding="same", name="side2")(d2))
    side3 = up(up(layers.Conv2D(1, 3, padding="same", name="side3")(s3)))
    fused = layers.Conv2D(1, 1, name="fuse")(layers.Concatenate()([side1, side2, side3]))
    maps = [layers.Reshape((1, SIZE, SIZE))(m) for m in (fused, side1, side2, side3)]
    return keras.Model(view, layers.Concatenate(axis=1, name="maps")(maps), name="u2net")


def loss(targets, outputs):
    """Weighted cross entropies of all maps, and the soft intersection of the fused one; a value a picture."""
    truth = ops.broadcast_to(targets[:, None], ops.shape(outputs))
    entropy = ops.maximum(outputs, 0.0) - outputs * truth + ops.log1p(ops.exp(-ops.abs(outputs)))
    entropy = ops.mean(entropy, axis=(2, 3))
    total = 0.0
    for i, weight in enumerate(SIDE_WEIGHTS):
        total = total + weight * entropy[:, i]
    prob = ops.sigmoid(outputs[:, 0])
    common = ops.sum(prob * targets, axis=(1, 2))
    union = ops.sum(prob, axis=(1, 2)) + ops.sum(targets, axis=(1, 2)) - common
    return total + 1.0 - (common + 1.0) / (union + 1.0)
