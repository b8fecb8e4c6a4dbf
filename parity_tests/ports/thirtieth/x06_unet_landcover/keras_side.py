"""U-Net for small land-cover tiles, four classes, strong class imbalance."""

import keras
from keras import layers, ops

CLASSES = 4
CLASS_WEIGHTS = (0.4, 1.0, 2.5, 4.0)


def conv_bn(x, filters, name, dilation=1):
    x = layers.Conv2D(
        filters,
        3,
        padding="same",
        dilation_rate=dilation,
        use_bias=False,
        kernel_initializer="he_normal",
        name=name + "_conv",
    )(x)
    x = layers.BatchNormalization(name=name + "_bn")(x)
    return layers.ReLU(max_value=6.0, name=name + "_act")(x)


def build():
    inp = keras.Input((20, 20, 3), name="x")
    e1 = conv_bn(inp, 8, "enc1")
    x = layers.AveragePooling2D(3, strides=2, padding="same")(e1)
    e2 = conv_bn(x, 12, "enc2")
    x = layers.AveragePooling2D(3, strides=2, padding="same")(e2)
    x = conv_bn(x, 16, "mid1")
    x = conv_bn(x, 16, "mid2", dilation=2)
    x = layers.Conv2DTranspose(12, 3, strides=2, padding="same", name="up2")(x)
    x = layers.Concatenate()([x, e2])
    x = conv_bn(x, 12, "dec2")
    x = layers.UpSampling2D(2, interpolation="bilinear")(x)
    x = layers.Concatenate()([x, e1])
    x = conv_bn(x, 8, "dec1")
    out = layers.Conv2D(CLASSES, 1, name="classes")(x)
    return keras.Model(inp, out, name="unet")


def landcover_loss(y_true, y_pred):
    """Class-weighted cross entropy + Tversky (misses cost more than false alarms)."""
    y = ops.one_hot(ops.cast(y_true, "int32"), CLASSES, dtype=y_pred.dtype)
    w = ops.convert_to_tensor(CLASS_WEIGHTS, dtype=y_pred.dtype)
    ce = -ops.sum(y * w * ops.log_softmax(y_pred, axis=-1), axis=-1)
    p = ops.softmax(y_pred, axis=-1)
    tp = ops.sum(p * y, axis=(1, 2))
    fp = ops.sum(p * (1.0 - y), axis=(1, 2))
    fn = ops.sum((1.0 - p) * y, axis=(1, 2))
    tversky = (tp + 1.0) / (tp + 0.3 * fp + 0.7 * fn + 1.0)
    return ops.mean(ce) + ops.mean(1.0 - tversky)
