import keras
from keras import layers, ops


def separable(x, filters, name):
    x = layers.SeparableConv2D(filters, 3, padding="same", use_bias=False, name=name)(x)
    x = layers.BatchNormalization(name=f"{name}_bn")(x)
    return layers.Activation("swish")(x)


def build():
    image = keras.Input((16, 16, 3), name="image")
    e1 = separable(layers.Conv2D(8, 3, padding="same", name="stem")(image), 12, "enc1")
    e2 = separable(layers.MaxPooling2D(2)(e1), 16, "enc2")
    x = layers.Conv2D(24, 3, strides=2, padding="same", activation="swish", name="down")(e2)
    x = layers.SpatialDropout2D(0.1)(x)
    x = layers.Conv2D(24, 3, padding="same", dilation_rate=2, activation="swish", name="atrous")(x)
    x = layers.Conv2DTranspose(16, 3, strides=2, padding="same", name="up1")(x)
    x = separable(layers.Concatenate()([x, e2]), 16, "dec1")
    x = layers.UpSampling2D(2, interpolation="bilinear")(x)
    x = separable(layers.Concatenate()([x, e1]), 12, "dec2")
    return keras.Model(image, layers.Conv2D(1, 1, name="mask")(x))


def bce_dice(y_true, y_pred):
    bce = ops.mean(ops.softplus(y_pred) - y_true * y_pred, axis=(1, 2, 3))
    p = ops.sigmoid(y_pred)
    overlap = ops.sum(p * y_true, axis=(1, 2, 3))
    total = ops.sum(p, axis=(1, 2, 3)) + ops.sum(y_true, axis=(1, 2, 3))
    return bce + 1.0 - (2.0 * overlap + 1.0) / (total + 1.0)
