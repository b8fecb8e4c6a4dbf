"""Small U-Net for three-class weld-seam segmentation of 24x24 tiles."""

import keras
from keras import layers, ops

CLASSES = 3
DICE_SMOOTH = 1.0


def conv_bn(x, filters, name, strides=1):
    x = layers.Conv2D(
        filters,
        3,
        strides=strides,
        padding="same",
        use_bias=False,
        name=f"{name}_conv",
    )(x)
    x = layers.BatchNormalization(momentum=0.9, epsilon=1e-3, name=f"{name}_bn")(x)
    return layers.Activation("elu", name=f"{name}_act")(x)


def build():
    image = keras.Input((24, 24, 2), name="image")
    s1 = conv_bn(image, 8, "enc1")
    x = conv_bn(s1, 12, "down1", strides=2)
    s2 = conv_bn(x, 12, "enc2")
    x = conv_bn(s2, 16, "down2", strides=2)

    x = layers.UpSampling2D(2, name="up2")(x)
    x = layers.Concatenate(name="skip2")([x, s2])
    x = conv_bn(x, 12, "dec2")

    x = layers.Conv2DTranspose(8, 2, strides=2, name="up1")(x)
    x = layers.Concatenate(name="skip1")([x, s1])
    x = conv_bn(x, 8, "dec1")
    logits = layers.Conv2D(CLASSES, 1, name="logits")(x)
    return keras.Model(image, logits, name="unet")


def loss(y_true, y_pred):
    """Cross entropy plus soft Dice over classes; labels (B,H,W), logits (B,H,W,C)."""
    labels = ops.cast(y_true, "int32")
    labels = ops.reshape(labels, ops.shape(y_pred)[:3])
    onehot = ops.one_hot(labels, CLASSES, dtype=y_pred.dtype)
    log_p = ops.log_softmax(y_pred, axis=-1)
    ce = -ops.mean(ops.sum(onehot * log_p, axis=-1))

    p = ops.exp(log_p)
    overlap = ops.sum(p * onehot, axis=(1, 2))
    total = ops.sum(p, axis=(1, 2)) + ops.sum(onehot, axis=(1, 2))
    dice = (2.0 * overlap + DICE_SMOOTH) / (total + DICE_SMOOTH)
    return ce + 1.0 - ops.mean(dice)
