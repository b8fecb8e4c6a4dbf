import keras
from keras import layers, ops

NUM_CLASSES = 3


def double_conv(x, filters):
    for _ in range(2):
        x = layers.Conv2D(filters, 3, padding="same")(x)
        x = layers.GroupNormalization(groups=4)(x)
        x = layers.Activation("relu")(x)
    return x


def build():
    inputs = keras.Input((16, 16, 2))
    d1 = double_conv(inputs, 8)
    p1 = layers.MaxPooling2D()(d1)
    d2 = double_conv(p1, 12)
    p2 = layers.MaxPooling2D()(d2)
    mid = double_conv(p2, 16)
    u2 = layers.UpSampling2D(interpolation="bilinear")(mid)
    u2 = double_conv(layers.Concatenate()([d2, u2]), 12)
    u1 = layers.UpSampling2D(interpolation="bilinear")(u2)
    u1 = double_conv(layers.Concatenate()([d1, u1]), 8)
    return keras.Model(inputs, layers.Conv2D(NUM_CLASSES, 1)(u1), name="unet")


def loss(y_true, y_pred):
    onehot = ops.one_hot(ops.cast(y_true, "int32"), NUM_CLASSES, dtype=y_pred.dtype)
    ce = -ops.mean(ops.sum(onehot * ops.log_softmax(y_pred, axis=-1), axis=-1))
    probs = ops.softmax(y_pred, axis=-1)
    inter = ops.sum(probs * onehot, axis=(1, 2))
    total = ops.sum(probs + onehot, axis=(1, 2))
    dice = (2 * inter + 1.0) / (total + 1.0)
    return ce + 1.0 - ops.mean(dice)
