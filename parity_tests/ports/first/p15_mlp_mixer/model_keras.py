"""MLP-Mixer on 16x16 pictures, 16 patches."""

import keras
from keras import layers


def mlp(x, hidden, name):
    out = x.shape[-1]
    x = layers.Dense(hidden, activation="gelu", name=f"{name}_dense1")(x)
    return layers.Dense(out, name=f"{name}_dense2")(x)


def mixer_block(x, name, token_hidden, channel_hidden):
    y = layers.LayerNormalization(epsilon=1e-6, name=f"{name}_norm1")(x)
    y = layers.Permute((2, 1), name=f"{name}_to_tokens")(y)
    y = mlp(y, token_hidden, f"{name}_token")
    y = layers.Permute((2, 1), name=f"{name}_to_channels")(y)
    x = layers.Add(name=f"{name}_add1")([x, y])
    y = layers.LayerNormalization(epsilon=1e-6, name=f"{name}_norm2")(x)
    return layers.Add(name=f"{name}_add2")([x, mlp(y, channel_hidden, f"{name}_channel")])


def build(width=16, depth=4, classes=10):
    image = keras.Input((16, 16, 3), name="image")
    x = layers.Conv2D(width, 4, strides=4, name="patches")(image)
    x = layers.Reshape((16, width), name="tokens")(x)
    for i in range(depth):
        x = mixer_block(x, f"block{i}", 32, 48)
    x = layers.LayerNormalization(epsilon=1e-6, name="norm")(x)
    x = layers.GlobalAveragePooling1D(name="pool")(x)
    return keras.Model(image, layers.Dense(classes, name="head")(x), name="mixer")
