import keras
import tensorflow as tf
from keras.layers import (
    Activation,
    Add,
    BatchNormalization,
    Concatenate,
    Conv2D,
    Conv2DTranspose,
    Input,
    MaxPooling2D,
    Multiply,
    UpSampling2D,
)

SIZE = 24
DELTA = 0.2


def double_conv(x, f, tag):
    for i in "ab":
        x = Conv2D(f, 3, padding="same", use_bias=False, name=f"{tag}{i}_conv")(x)
        x = BatchNormalization(name=f"{tag}{i}_bn")(x)
        x = Activation("swish", name=f"{tag}{i}_act")(x)
    return x


def attention_gate(skip, gate, f, tag):
    """Oktay et al. 2018; the gate is one level coarser than the skip."""
    q = Add()(
        [
            Conv2D(f, 1, strides=2, use_bias=False, name=tag + "_theta")(skip),
            Conv2D(f, 1, name=tag + "_phi")(gate),
        ]
    )
    a = Conv2D(1, 1, activation="sigmoid", name=tag + "_psi")(Activation("softplus")(q))
    a = UpSampling2D(2, interpolation="bilinear")(a)
    y = Conv2D(skip.shape[-1], 1, name=tag + "_w")(Multiply()([skip, a]))
    return BatchNormalization(name=tag + "_bn")(y)


def build():
    image = Input((SIZE, SIZE, 1), name="image")
    e1 = double_conv(image, 8, "enc1")
    e2 = double_conv(MaxPooling2D()(e1), 12, "enc2")
    mid = double_conv(MaxPooling2D()(e2), 16, "mid")

    g2 = attention_gate(e2, mid, 8, "att2")
    d2 = Concatenate()([Conv2DTranspose(12, 2, strides=2, name="up2")(mid), g2])
    d2 = double_conv(d2, 12, "dec2")
    g1 = attention_gate(e1, d2, 6, "att1")
    d1 = Concatenate()([Conv2DTranspose(8, 2, strides=2, name="up1")(d2), g1])
    d1 = double_conv(d1, 8, "dec1")

    mask = Conv2D(1, 1, name="mask")(d1)
    dist = Conv2D(1, 1, activation="sigmoid", name="dist")(d1)
    return keras.Model(image, {"mask": mask, "dist": dist}, name="cells")


def mask_loss(y, logits):
    """Cross entropy and soft dice, a number for each picture."""
    y = tf.cast(y, logits.dtype)
    ce = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=logits), axis=[1, 2, 3])
    p = tf.sigmoid(logits)
    inter = tf.reduce_sum(p * y, axis=[1, 2, 3])
    total = tf.reduce_sum(p, axis=[1, 2, 3]) + tf.reduce_sum(y, axis=[1, 2, 3])
    return ce + 1.0 - (2.0 * inter + 1.0) / (total + 1.0)


def dist_loss(y, pred):
    return tf.reduce_mean(keras.losses.huber(y, pred, delta=DELTA), axis=[1, 2])
