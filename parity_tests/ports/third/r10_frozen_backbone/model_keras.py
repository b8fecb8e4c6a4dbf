import keras
from keras import layers


def separable(x, filters, strides, name):
    x = layers.DepthwiseConv2D(3, strides=strides, padding="valid", use_bias=False, name=f"{name}_dw")(x)
    x = layers.Conv2D(filters, 1, use_bias=False, name=f"{name}_pw")(x)
    x = layers.BatchNormalization(name=f"{name}_bn")(x)
    return layers.Activation("relu6", name=f"{name}_relu")(x)


def make_backbone():
    inputs = keras.Input((31, 31, 3))
    x = layers.Rescaling(1 / 127.5, offset=-1.0)(inputs)
    x = layers.Conv2D(8, 3, strides=2, use_bias=False, name="stem")(x)
    x = layers.BatchNormalization(name="stem_bn")(x)
    x = layers.Activation("relu6", name="stem_relu")(x)
    x = separable(x, 16, 1, "block1")
    x = separable(x, 24, 2, "block2")
    return keras.Model(inputs, x, name="backbone")


def build(classes=4):
    backbone = make_backbone()
    backbone.trainable = False
    image = keras.Input((31, 31, 3), name="image")
    x = backbone(image)
    x = layers.Conv2D(16, 3, activation="relu", name="head_conv")(x)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dense(16, activation="relu", name="head_fc")(x)
    return keras.Model(image, layers.Dense(classes, name="head_out")(x))
