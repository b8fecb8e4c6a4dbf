import keras
from keras import layers, ops

FRAMES, MELS, WORDS = 40, 12, 5


def block(x, width, dilation):
    h = layers.LayerNormalization()(x)
    h = layers.ZeroPadding1D((2 * dilation, 0))(h)
    h = layers.SeparableConv1D(width, 3, dilation_rate=dilation, activation="swish")(h)
    h = layers.Dropout(0.1)(h)
    return layers.Add()([x, h])


def build():
    mel = keras.Input((FRAMES, MELS), name="mel")
    length = keras.Input((), dtype="int32", name="length")

    valid = ops.expand_dims(length, -1) > ops.arange(FRAMES)
    valid = ops.cast(ops.expand_dims(valid, -1), mel.dtype)

    x = layers.Dense(24)(mel)
    for dilation in (1, 2, 4):
        x = block(x, 24, dilation)

    n = ops.sum(valid, axis=1)
    mean = ops.sum(x * valid, axis=1) / n
    var = ops.sum(ops.square(x - ops.expand_dims(mean, 1)) * valid, axis=1) / n
    stats = layers.Concatenate()([mean, ops.sqrt(var + 1e-5)])
    logits = layers.Dense(WORDS)(stats)
    return keras.Model({"mel": mel, "length": length}, logits)
