"""Inverted-residual network on bird-call spectrograms, (32, 24, 1) -> 5 species."""

import keras
from keras import layers

SPECIES = 5
# (expansion, filters, stride)
STAGES = ((2, 8, 1), (3, 12, 2), (2, 12, 1), (3, 16, 2))


def norm(x, name):
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-3, name=name)(x)


def squeeze_excite(x, name):
    """Channel gate from the pooled map, hard-sigmoid as in MobileNetV3."""
    filters = x.shape[-1]
    s = layers.GlobalAveragePooling2D(keepdims=True, name=f"{name}_pool")(x)
    s = layers.Conv2D(filters // 4, 1, activation="relu", name=f"{name}_down")(s)
    s = layers.Conv2D(filters, 1, activation="hard_sigmoid", name=f"{name}_up")(s)
    return layers.Multiply(name=f"{name}_scale")([x, s])


def inverted_residual(x, expansion, filters, stride, name):
    skip, n_in = x, x.shape[-1]
    x = layers.Conv2D(n_in * expansion, 1, use_bias=False, name=f"{name}_expand")(x)
    x = layers.ReLU(6.0, name=f"{name}_relu1")(norm(x, f"{name}_norm1"))
    x = layers.DepthwiseConv2D(3, strides=stride, padding="same", use_bias=False, name=f"{name}_depthwise")(x)
    x = layers.ReLU(6.0, name=f"{name}_relu2")(norm(x, f"{name}_norm2"))
    x = squeeze_excite(x, f"{name}_se")
    x = layers.Conv2D(filters, 1, use_bias=False, name=f"{name}_project")(x)
    x = norm(x, f"{name}_norm3")
    if stride == 1 and n_in == filters:
        x = layers.Add(name=f"{name}_add")([skip, x])
    return x


def build():
    spectrogram = keras.Input((32, 24, 1), name="spectrogram")
    x = layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False, name="stem")(spectrogram)
    x = layers.ReLU(6.0, name="stem_relu")(norm(x, "stem_norm"))
    for i, (expansion, filters, stride) in enumerate(STAGES):
        x = inverted_residual(x, expansion, filters, stride, f"stage{i}")
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return keras.Model(spectrogram, layers.Dense(SPECIES, name="species")(x), name="birds")
