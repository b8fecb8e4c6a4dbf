import keras
from keras import layers


def conv_bn(x, filters, size, strides=1, activation=True):
    x = layers.Conv2D(filters, size, strides=strides, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    return layers.ReLU()(x) if activation else x


def squeeze_excite(x, ratio=4):
    filters = x.shape[-1]
    s = layers.GlobalAveragePooling2D()(x)
    s = layers.Dense(filters // ratio, activation="relu")(s)
    s = layers.Dense(filters, activation="sigmoid")(s)
    s = layers.Reshape((1, 1, filters))(s)
    return layers.Multiply()([x, s])


def block(x, filters, strides):
    shortcut = x
    y = conv_bn(x, filters, 3, strides)
    y = conv_bn(y, filters, 3, activation=False)
    y = squeeze_excite(y)
    if strides > 1:
        shortcut = layers.AveragePooling2D(2)(shortcut)
    if shortcut.shape[-1] != filters:
        shortcut = conv_bn(shortcut, filters, 1, activation=False)
    return layers.ReLU()(layers.Add()([y, shortcut]))


def build(classes=6, stages=((8, 1), (16, 2), (24, 2))):
    inputs = keras.Input((24, 24, 3), name="image")
    x = conv_bn(inputs, 8, 3)
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    for filters, strides in stages:
        x = block(x, filters, strides)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(classes)(x), name="se_resnet")
