"""Land cover from 4-band satellite tiles: a small U-Net with GroupNorm."""

import keras
from keras import layers, ops

CLASSES = 3


def conv_gn(x, filters, name, strides=1):
    x = layers.SeparableConv2D(
        filters, 3, strides=strides, padding="same", use_bias=False, name=f"{name}_sep"
    )(x)
    x = layers.GroupNormalization(groups=4, name=f"{name}_gn")(x)
    return layers.Activation("swish", name=f"{name}_act")(x)


def build():
    inp = keras.Input((16, 16, 4), name="tile")
    x = layers.Conv2D(8, 3, padding="same", name="stem")(inp)
    s1 = conv_gn(x, 8, "enc1")
    x = conv_gn(s1, 16, "down1", strides=2)
    s2 = conv_gn(x, 16, "enc2")
    x = conv_gn(s2, 24, "down2", strides=2)
    x = conv_gn(x, 24, "mid")
    x = layers.UpSampling2D(2, interpolation="nearest", name="up2")(x)
    x = layers.Concatenate(name="cat2")([x, s2])
    x = conv_gn(x, 16, "dec2")
    x = layers.Conv2DTranspose(8, 2, strides=2, padding="same", name="up1")(x)
    x = layers.Concatenate(name="cat1")([x, s1])
    x = conv_gn(x, 8, "dec1")
    out = layers.Conv2D(CLASSES, 1, name="logits")(x)
    return keras.Model(inp, out, name="landcover")


def dice_ce(y_true, y_pred):
    """y_true: (B, H, W) class ids; cross entropy plus soft Dice of each tile."""
    t = ops.one_hot(ops.cast(y_true, "int32"), CLASSES, dtype=y_pred.dtype)
    logp = ops.log_softmax(y_pred, axis=-1)
    ce = -ops.mean(ops.sum(t * logp, axis=-1), axis=(1, 2))
    p = ops.exp(logp)
    inter = ops.sum(p * t, axis=(1, 2))
    denom = ops.sum(p, axis=(1, 2)) + ops.sum(t, axis=(1, 2))
    dice = 1.0 - ops.mean((2.0 * inter + 1.0) / (denom + 1.0), axis=-1)
    return ops.mean(ce + dice)
