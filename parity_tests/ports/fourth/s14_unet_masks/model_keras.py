import keras
from keras import layers, ops


def double(x, channels, name):
    for i in (1, 2):
        x = layers.Conv2D(channels, 3, padding="same", use_bias=False, name=f"{name}_conv{i}")(x)
        x = layers.BatchNormalization(momentum=0.9, name=f"{name}_norm{i}")(x)
        x = layers.ReLU(name=f"{name}_relu{i}")(x)
    return x


def build():
    scan = keras.Input((20, 20, 1), name="scan")
    top = double(scan, 8, "top")
    x = layers.AveragePooling2D(3, 2, padding="same", name="halve1")(top)
    middle = double(x, 16, "middle")
    x = layers.AveragePooling2D(3, 2, padding="same", name="halve2")(middle)
    x = double(x, 24, "bottom")
    x = layers.UpSampling2D(2, name="twice1")(x)
    x = double(layers.Concatenate(name="join1")([middle, x]), 16, "up1")
    x = layers.UpSampling2D(2, name="twice2")(x)
    x = double(layers.Concatenate(name="join2")([top, x]), 8, "up2")
    x = layers.Conv2D(1, 1, name="logits")(x)
    return keras.Model(scan, layers.Reshape((20, 20), name="mask")(x))


class OverlapLoss(keras.losses.Loss):
    """Cross-entropy of pixels plus soft Dice, one value a scan."""

    def call(self, y_true, y_pred):
        pixel = ops.mean(ops.softplus(y_pred) - y_true * y_pred, axis=(1, 2))
        p = ops.sigmoid(y_pred)
        both = ops.sum(p * y_true, axis=(1, 2))
        total = ops.sum(p, axis=(1, 2)) + ops.sum(y_true, axis=(1, 2))
        return pixel + 1.0 - (2.0 * both + 1.0) / (total + 1.0)


overlap = OverlapLoss(name="overlap")
