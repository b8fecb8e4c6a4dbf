import keras
from keras import layers, ops


def conv_gn(x, c, name, strides=1):
    x = layers.Conv2D(c, 3, strides=strides, padding="same", use_bias=False, name=name)(x)
    x = layers.GroupNormalization(groups=4, epsilon=1e-3, name=name + "_gn")(x)
    return layers.Activation("relu")(x)


def squeeze_excite(x, name):
    c = x.shape[-1]
    s = layers.GlobalAveragePooling2D()(x)
    s = layers.Dense(c // 2, activation="relu", name=name + "_down")(s)
    s = layers.Dense(c, activation="hard_sigmoid", name=name + "_up")(s)
    return layers.Multiply()([x, layers.Reshape((1, 1, c))(s)])


def build():
    inp = keras.Input((16, 16, 1), name="x")
    e1 = squeeze_excite(conv_gn(inp, 8, "enc1"), "se1")
    e2 = squeeze_excite(conv_gn(e1, 12, "enc2", strides=2), "se2")
    mid = conv_gn(e2, 16, "mid", strides=2)
    u = layers.Conv2DTranspose(12, 3, strides=2, padding="same", name="up2")(mid)
    u = conv_gn(layers.Concatenate()([u, e2]), 12, "dec2")
    u = layers.UpSampling2D(2, interpolation="bilinear")(u)
    u = conv_gn(layers.Concatenate()([u, e1]), 8, "dec1")
    return keras.Model(inp, layers.Conv2D(1, 1, name="mask")(u))


def dice_focal(y_true, y_pred, gamma=2.0, alpha=0.25):
    p = ops.sigmoid(y_pred)
    inter = ops.sum(p * y_true, axis=(1, 2, 3))
    total = ops.sum(p, axis=(1, 2, 3)) + ops.sum(y_true, axis=(1, 2, 3))
    dice = 1.0 - (2.0 * inter + 1.0) / (total + 1.0)
    ce = ops.softplus(y_pred) - y_true * y_pred
    pt = y_true * p + (1.0 - y_true) * (1.0 - p)
    at = y_true * alpha + (1.0 - y_true) * (1.0 - alpha)
    focal = ops.mean(at * (1.0 - pt) ** gamma * ce, axis=(1, 2, 3))
    return ops.mean(dice + 5.0 * focal)
