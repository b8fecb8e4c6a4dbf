"""Five landmarks of a face: separable convolutions, squeeze-and-excite, and the centre of gravity of each heat map."""

import keras
from keras import layers, ops

SIZE, POINTS = 16, 5


def separable(x, width, stride, name):
    x = layers.DepthwiseConv2D(3, strides=stride, padding="same", use_bias=False, name=name + "_dw")(x)
    x = layers.BatchNormalization(name=name + "_bn1")(x)
    x = layers.ReLU(max_value=6.0)(x)
    x = layers.Conv2D(width, 1, use_bias=False, name=name + "_pw")(x)
    x = layers.BatchNormalization(name=name + "_bn2")(x)
    return layers.ReLU(max_value=6.0, name=name)(x)


def squeeze_excite(x, width, name):
    s = layers.GlobalAveragePooling2D(keepdims=True)(x)
    s = layers.Conv2D(width // 4, 1, activation="relu", name=name + "_squeeze")(s)
    s = layers.Conv2D(width, 1, activation="hard_sigmoid", name=name + "_excite")(s)
    return layers.Multiply(name=name)([x, s])


@keras.saving.register_keras_serializable("faces")
class SoftArgmax(layers.Layer):
    """(N, H, W, points) -> (N, points, 2), coordinates x, y from -1 to 1"""

    def call(self, maps):
        _, h, w, c = maps.shape
        p = ops.softmax(ops.reshape(ops.transpose(maps, (0, 3, 1, 2)), (-1, c, h * w)), axis=-1)
        p = ops.reshape(p, (-1, c, h, w))
        xs, ys = (ops.cast(ops.arange(n), maps.dtype) * 2 / (n - 1) - 1 for n in (w, h))
        x = ops.sum(ops.sum(p, axis=2) * xs, axis=-1)
        y = ops.sum(ops.sum(p, axis=3) * ys, axis=-1)
        return ops.stack([x, y], axis=-1)


def build():
    face = keras.Input((SIZE, SIZE, 3), name="face")
    x = layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False, name="stem")(face)
    x = layers.BatchNormalization(name="stem_bn")(x)
    x = skip = layers.ReLU(max_value=6.0)(x)  # 8 x 8
    x = separable(x, 12, 2, "down")  # 4 x 4
    x = squeeze_excite(x, 12, "attend")
    x = separable(x, 12, 1, "deep")
    x = layers.UpSampling2D(2, name="up")(x)
    x = layers.Concatenate(name="join")([skip, x])
    x = separable(x, 16, 1, "merge")
    x = layers.Conv2D(POINTS, 1, use_bias=False, name="maps")(x)
    return keras.Model(face, SoftArgmax(name="points")(x), name="landmarks")


def wing(points, predicted):
    d = ops.abs(points - predicted)
    w, e = 0.3, 0.1
    c = w - w * ops.log(1 + ops.convert_to_tensor(w / e, dtype=d.dtype))
    return ops.mean(ops.where(d < w, w * ops.log1p(d / e), d - c))
