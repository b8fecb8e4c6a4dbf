import keras
from keras import layers


def backbone():
    img = keras.Input((14, 14, 3))
    x = layers.Conv2D(12, 3, strides=2, padding="same", use_bias=False)(img)
    x = layers.GroupNormalization(groups=3)(x)
    x = layers.Activation("swish")(x)

    s = layers.Conv2D(16, 1)(x)
    r = layers.SeparableConv2D(16, 3, padding="same")(x)
    r = layers.GroupNormalization(groups=4)(r)
    w = layers.GlobalAveragePooling2D(keepdims=True)(r)
    w = layers.Dense(4, activation="relu")(w)
    w = layers.Dense(16, activation="sigmoid")(w)
    x = layers.Activation("swish")(layers.Add()([s, layers.Multiply()([r, w])]))

    x = layers.AveragePooling2D(2, padding="same")(x)
    x = layers.Flatten()(x)
    return keras.Model(img, layers.Dense(20)(x), name="backbone")


def build():
    img = keras.Input((14, 14, 3), name="stamp")
    f = backbone()
    flipped = layers.Lambda(lambda t: t[:, :, ::-1, :])(img)
    h = layers.Average()([f(img), f(flipped)])
    h = layers.ReLU()(h)
    h = layers.Dropout(0.2)(h)
    return keras.Model(img, layers.Dense(4, name="morphology")(h))
