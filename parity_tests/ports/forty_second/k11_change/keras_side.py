import numpy as np
import tensorflow as tf
from tensorflow.keras import Input, Model
from tensorflow.keras import layers as kl

SIZE, BANDS = 16, 4
GAIN = np.array([8.0, 7.0, 6.0, 3.0], dtype=np.float32)


def add_indices(x):
    """Scaled bands plus NDVI and NDWI."""
    green, red, nir = x[..., 1:2], x[..., 2:3], x[..., 3:4]
    ndvi = (nir - red) / (nir + red + 0.01)
    ndwi = (green - nir) / (green + nir + 0.01)
    return tf.concat([x * GAIN, ndvi, ndwi], axis=-1)


def cbr(filters, name):
    conv = kl.Conv2D(
        filters, 3, padding="same", use_bias=False, kernel_initializer="he_normal", name=name + "_conv"
    )
    bn = kl.BatchNormalization(momentum=0.95, epsilon=1e-5, name=name + "_bn")
    act = kl.ReLU(name=name + "_relu")
    return lambda t: act(bn(conv(t)))


def make_encoder():
    inp = Input((SIZE, SIZE, BANDS))
    x = kl.Lambda(add_indices, output_shape=(SIZE, SIZE, BANDS + 2))(inp)
    s1 = cbr(12, "e1")(x)
    s2 = cbr(20, "e2")(kl.MaxPooling2D()(s1))
    s3 = cbr(28, "e3")(kl.MaxPooling2D()(s2))
    return Model(inp, [s1, s2, s3], name="encoder")


def build():
    before, after = Input((SIZE, SIZE, BANDS), name="before"), Input((SIZE, SIZE, BANDS), name="after")
    encoder = make_encoder()
    f, g = encoder(before), encoder(after)
    d1, d2, d3 = [
        kl.Lambda(lambda p: tf.abs(p[0] - p[1]), output_shape=lambda s: s[0], name=f"diff{i + 1}")([a, b])
        for i, (a, b) in enumerate(zip(f, g))
    ]
    x = kl.Conv2D(28, 1, activation="relu", name="bridge")(d3)
    x = kl.Conv2DTranspose(20, 2, strides=2, name="up2")(x)
    x = cbr(20, "dec2")(kl.Concatenate()([x, d2]))
    x = kl.Conv2DTranspose(12, 2, strides=2, name="up1")(x)
    x = cbr(12, "dec1")(kl.Concatenate()([x, d1]))
    return Model([before, after], kl.Conv2D(1, 1, name="change_logit")(x), name="fc_siam_diff")


def bce_dice(y, logit):
    y = tf.cast(y, logit.dtype)
    bce = tf.reduce_mean(tf.nn.weighted_cross_entropy_with_logits(y, logit, pos_weight=2.0), axis=[1, 2, 3])
    p = tf.sigmoid(logit)
    inter = tf.reduce_sum(p * y, axis=[1, 2, 3])
    dice = (2.0 * inter + 1.0) / (tf.reduce_sum(p, axis=[1, 2, 3]) + tf.reduce_sum(y, axis=[1, 2, 3]) + 1.0)
    return 0.5 * bce + 0.5 * (1.0 - dice)
