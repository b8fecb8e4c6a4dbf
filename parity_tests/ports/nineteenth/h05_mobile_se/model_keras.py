import keras
from keras import layers


def conv_bn(x, filters, kernel, stride, name, activation="hard_silu"):
    x = layers.Conv2D(filters, kernel, stride, padding="same", use_bias=False, name=f"{name}_conv")(x)
    x = layers.BatchNormalization(momentum=0.9, name=f"{name}_bn")(x)
    return layers.Activation(activation, name=f"{name}_act")(x) if activation else x


def squeeze_excite(x, ratio, name):
    filters = x.shape[-1]
    s = layers.GlobalAveragePooling2D(keepdims=True, name=f"{name}_squeeze")(x)
    s = layers.Conv2D(filters // ratio, 1, activation="relu", name=f"{name}_reduce")(s)
    s = layers.Conv2D(filters, 1, activation="hard_sigmoid", name=f"{name}_expand")(s)
    return layers.Multiply(name=f"{name}_scale")([x, s])


def inverted_residual(x, expand, filters, kernel, stride, name):
    skip = x
    x = conv_bn(x, expand, 1, 1, f"{name}_expand")
    x = layers.DepthwiseConv2D(kernel, stride, padding="same", use_bias=False, name=f"{name}_dw")(x)
    x = layers.BatchNormalization(momentum=0.9, name=f"{name}_dw_bn")(x)
    x = layers.Activation("hard_silu", name=f"{name}_dw_act")(x)
    x = squeeze_excite(x, 4, f"{name}_se")
    x = conv_bn(x, filters, 1, 1, f"{name}_project", None)
    if stride == 1 and skip.shape[-1] == filters:
        x = layers.Add(name=f"{name}_add")([skip, x])
    return x


def mobile(classes=4):
    image = keras.Input((16, 16, 3), name="image")
    x = conv_bn(image, 8, 3, 2, "stem")
    x = inverted_residual(x, 16, 8, 3, 1, "b1")
    x = inverted_residual(x, 16, 12, 5, 2, "b2")
    x = inverted_residual(x, 24, 12, 3, 1, "b3")
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dense(20, activation="hard_silu", name="pre")(x)
    x = layers.Dropout(0.2)(x)
    return keras.Model(image, layers.Dense(classes, name="classes")(x))
