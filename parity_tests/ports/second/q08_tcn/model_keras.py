import keras
from keras import layers


def residual_block(x, filters, kernel, dilation, name):
    y = layers.Conv1D(
        filters, kernel, dilation_rate=dilation, padding="causal", activation="relu", name=name + "_conv1"
    )(x)
    y = layers.Conv1D(
        filters, kernel, dilation_rate=dilation, padding="causal", activation="relu", name=name + "_conv2"
    )(y)
    if x.shape[-1] != filters:
        x = layers.Conv1D(filters, 1, name=name + "_downsample")(x)
    return layers.ReLU(name=name + "_out")(layers.Add(name=name + "_add")([x, y]))


def build(steps=32, channels=3, filters=(16, 16, 24), kernel=3):
    inputs = x = keras.Input((steps, channels), name="x")
    for i, f in enumerate(filters):
        x = residual_block(x, f, kernel, 2**i, f"block{i + 1}")
    x = x[:, -1]
    return keras.Model(inputs, layers.Dense(1, name="forecast")(x), name="tcn")
