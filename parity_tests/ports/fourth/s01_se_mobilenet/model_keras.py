import keras
from keras import layers


def squeeze_excite(x, channels, name):
    s = layers.GlobalAveragePooling2D(keepdims=True, name=f"{name}_squeeze")(x)
    s = layers.Conv2D(channels // 4, 1, activation="relu", name=f"{name}_reduce")(s)
    s = layers.Conv2D(channels, 1, activation="sigmoid", name=f"{name}_expand")(s)
    return layers.Multiply(name=f"{name}_scale")([x, s])


def block(x, inputs, outputs, stride, name):
    y = layers.Conv2D(2 * inputs, 1, use_bias=False, name=f"{name}_up")(x)
    y = layers.BatchNormalization(momentum=0.9, name=f"{name}_up_bn")(y)
    y = layers.Activation("silu", name=f"{name}_up_act")(y)
    y = layers.DepthwiseConv2D(5, stride, padding="same", use_bias=False, name=f"{name}_dw")(y)
    y = layers.BatchNormalization(momentum=0.9, name=f"{name}_dw_bn")(y)
    y = layers.Activation("silu", name=f"{name}_dw_act")(y)
    y = squeeze_excite(y, 2 * inputs, name)
    y = layers.Conv2D(outputs, 1, use_bias=False, name=f"{name}_down")(y)
    y = layers.BatchNormalization(momentum=0.9, name=f"{name}_down_bn")(y)
    if stride == 1 and inputs == outputs:
        y = layers.SpatialDropout2D(0.15, name=f"{name}_drop")(y)
        y = layers.Add(name=f"{name}_add")([x, y])
    return y


def build():
    image = keras.Input((20, 20, 3), name="image")
    x = layers.Rescaling(1 / 127.5, offset=-1.0, name="rescale")(image)
    x = layers.Conv2D(16, 3, 2, padding="same", use_bias=False, name="stem")(x)
    x = layers.BatchNormalization(momentum=0.9, name="stem_bn")(x)
    x = layers.Activation("silu", name="stem_act")(x)
    x = block(x, 16, 16, 1, "b1")
    x = block(x, 16, 24, 2, "b2")
    x = block(x, 24, 24, 1, "b3")
    x = layers.AveragePooling2D(2, padding="same", name="pool")(x)
    x = layers.Flatten(name="flatten")(x)
    x = layers.Dropout(0.3, name="drop")(x)
    return keras.Model(image, layers.Dense(7, name="logits")(x))
