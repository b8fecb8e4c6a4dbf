import keras
from keras import layers


def build():
    frames = keras.Input((12, 12, 3), name="frames")
    c1 = layers.Conv2D(8, 3, padding="same", activation="swish", name="enc1")(frames)
    c2 = layers.Conv2D(12, 3, strides=2, padding="same", activation="swish", name="enc2")(c1)

    gate = layers.Conv2D(12, 1, activation="sigmoid", name="gate")(c2)
    mid = layers.Conv2D(12, 3, padding="same", activation="tanh", name="mid")(c2)
    mid = layers.Add()([layers.Multiply()([gate, mid]), c2])

    up = layers.Conv2DTranspose(8, 3, strides=2, padding="same", name="up")(mid)
    up = layers.LeakyReLU(negative_slope=0.25)(up)
    x = layers.Concatenate()([up, c1])
    x = layers.Conv2D(8, 3, padding="same", activation="swish", name="dec")(x)
    delta = layers.Conv2D(1, 1, name="head")(x)
    last = frames[..., -1:]
    return keras.Model(frames, last + delta)
