import keras
from keras import layers


def fire(x, squeeze, expand, name):
    s = layers.Conv2D(squeeze, 1, activation="relu", name=f"{name}_squeeze")(x)
    left = layers.Conv2D(expand, 1, activation="relu", name=f"{name}_expand1")(s)
    right = layers.Conv2D(expand, 3, padding="same", activation="relu", name=f"{name}_expand3")(s)
    return layers.Concatenate(name=f"{name}_concat")([left, right])


def build(classes=6):
    inputs = keras.Input((20, 20, 3), name="x")
    x = layers.Conv2D(12, 3, strides=2, padding="same", activation="relu", name="stem")(inputs)
    x = layers.MaxPooling2D(3, 2, padding="same")(x)
    x = fire(x, 4, 8, "fire2")
    x = layers.Add()([x, fire(x, 4, 8, "fire3")])
    x = layers.MaxPooling2D(3, 2, padding="same")(x)
    x = fire(x, 6, 12, "fire4")
    x = layers.Add()([x, fire(x, 6, 12, "fire5")])
    x = layers.Dropout(0.3)(x)
    x = layers.Conv2D(classes, 1, name="classifier")(x)
    return keras.Model(inputs, layers.GlobalAveragePooling2D()(x))
