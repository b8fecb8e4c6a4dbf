"""Pictures with a condition vector that scales and shifts feature maps (FiLM)."""

import keras
from keras import layers


def film(x, condition, name):
    channels = x.shape[-1]
    both = layers.Dense(2 * channels, name=f"{name}_generator")(condition)
    gamma = layers.Reshape((1, 1, channels), name=f"{name}_gamma")(both[:, :channels])
    beta = layers.Reshape((1, 1, channels), name=f"{name}_beta")(both[:, channels:])
    x = layers.Multiply(name=f"{name}_scale")([x, gamma])
    return layers.Add(name=f"{name}_shift")([x, beta])


def build():
    image = keras.Input((20, 20, 3), name="image")
    question = keras.Input((6,), name="question")
    condition = layers.Dense(24, activation="relu", name="condition")(question)
    x = layers.Conv2D(16, 3, padding="same", name="stem")(image)
    x = layers.BatchNormalization(name="stem_bn")(x)
    x = layers.Activation("relu", name="stem_relu")(x)
    x = layers.MaxPooling2D(2, name="stem_pool")(x)
    for i in (1, 2):
        y = layers.Conv2D(16, 3, padding="same", name=f"block{i}_conv")(x)
        y = layers.BatchNormalization(center=False, scale=False, name=f"block{i}_bn")(y)
        y = layers.Activation("relu", name=f"block{i}_relu")(film(y, condition, f"block{i}"))
        x = layers.Add(name=f"block{i}_add")([x, y])
    x = layers.GlobalMaxPooling2D(name="pool")(x)
    return keras.Model([image, question], layers.Dense(4, name="answer")(x), name="film_net")
