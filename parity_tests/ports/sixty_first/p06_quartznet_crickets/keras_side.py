import keras
from keras import layers, ops

BN = dict(momentum=0.95, epsilon=1e-3)


def separable(x, filters, size, name, dilation=1, relu=True):
    x = layers.SeparableConv1D(
        filters, size, padding="same", dilation_rate=dilation, use_bias=False, name=f"{name}_sep"
    )(x)
    x = layers.BatchNormalization(**BN, name=f"{name}_bn")(x)
    return layers.ReLU(name=f"{name}_relu")(x) if relu else x


def quartz_block(x, filters, size, name, repeats=2):
    side = layers.Conv1D(filters, 1, use_bias=False, name=f"{name}_side")(x)
    side = layers.BatchNormalization(**BN, name=f"{name}_side_bn")(side)
    for r in range(repeats):
        x = separable(x, filters, size, f"{name}_{r}", relu=r < repeats - 1)
    x = layers.Add(name=f"{name}_add")([x, side])
    return layers.ReLU(name=f"{name}_out")(x)


class StatisticsPooling(layers.Layer):
    def call(self, x):
        mean, variance = ops.moments(x, axes=[1])
        return ops.concatenate([mean, ops.sqrt(variance + 1e-5)], axis=-1)


def build():
    mel = keras.Input((48, 20), name="mel")
    x = layers.Conv1D(24, 5, strides=2, padding="same", use_bias=False, name="entry")(mel)
    x = layers.BatchNormalization(**BN, name="entry_bn")(x)
    x = layers.ReLU(name="entry_relu")(x)
    for i, (filters, size) in enumerate([(24, 5), (24, 7), (32, 9)]):
        x = quartz_block(x, filters, size, f"block{i}")
    x = separable(x, 32, 5, "dilated", dilation=2)
    x = layers.Conv1D(40, 1, use_bias=False, name="expand")(x)
    x = layers.BatchNormalization(**BN, name="expand_bn")(x)
    x = layers.ReLU(name="expand_relu")(x)
    x = StatisticsPooling(name="pool")(x)
    x = layers.Dense(24, activation="tanh", name="bottleneck")(x)
    return keras.Model(mel, layers.Dense(6, name="cricket")(x), name="quartznet")
