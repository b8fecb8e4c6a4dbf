"""U-Net of the original paper (valid convolutions, cropped skips), one level less."""

from keras import Input, Model, ops
from keras.layers import Concatenate, Conv2D, Cropping2D, MaxPooling2D, UpSampling2D
from keras.losses import binary_crossentropy


def double_conv(x, f, name):
    x = Conv2D(f, 3, activation="relu", kernel_initializer="he_normal", name=name + "_1")(x)
    return Conv2D(f, 3, activation="relu", kernel_initializer="he_normal", name=name + "_2")(x)


def up(x, skip, f, name):
    x = UpSampling2D(2, name=name + "_up")(x)
    x = Conv2D(f, 2, padding="same", name=name + "_conv")(x)
    d = (skip.shape[1] - x.shape[1]) // 2
    skip = Cropping2D(d, name=name + "_crop")(skip)
    return Concatenate(name=name + "_cat")([skip, x])


def build():
    image = Input((28, 28, 1), name="image")
    d1 = double_conv(image, 6, "down1")  # 24
    p1 = MaxPooling2D(name="pool1")(d1)  # 12
    bottom = double_conv(p1, 12, "bottom")  # 8
    u1 = up(bottom, d1, 6, "up1")  # 16
    x = Conv2D(6, 3, activation="relu", name="merge")(u1)  # 14
    mask = Conv2D(1, 1, name="mask")(x)
    return Model(image, mask, name="unet")


def dice_loss(y_true, y_pred, smooth=1.0):
    axes = (1, 2, 3)
    y_pred = ops.sigmoid(y_pred)
    inter = ops.sum(y_true * y_pred, axis=axes)
    total = ops.sum(y_true, axis=axes) + ops.sum(y_pred, axis=axes)
    return 1.0 - (2.0 * inter + smooth) / (total + smooth)


def bce_dice(y_true, y_pred):
    bce = ops.mean(binary_crossentropy(y_true, y_pred, from_logits=True), axis=(1, 2))
    return bce + dice_loss(y_true, y_pred)
