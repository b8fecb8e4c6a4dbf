"""Two speakers from one channel (Conv-TasNet): learned filters, masks from dilated convolutions, any order of speakers."""

import keras
import numpy as np
from keras import layers, ops

FILTERS, WIDTH, HIDDEN = 12, 6, 10


class GlobalNorm(layers.Layer):
    """Normalises over time and channels together."""

    def build(self, shape):
        self.gamma = self.add_weight(shape=(shape[-1],), initializer="ones", name="gamma")
        self.beta = self.add_weight(shape=(shape[-1],), initializer="zeros", name="beta")

    def call(self, x):
        mean = ops.mean(x, axis=(1, 2), keepdims=True)
        variance = ops.var(x, axis=(1, 2), keepdims=True)
        return self.gamma * (x - mean) / ops.sqrt(variance + 1e-8) + self.beta


def block(x, dilation, name):
    y = layers.Conv1D(HIDDEN, 1, name=f"{name}_in")(x)
    y = layers.PReLU(
        shared_axes=[1], alpha_initializer=keras.initializers.Constant(0.25), name=f"{name}_prelu1"
    )(y)
    y = GlobalNorm(name=f"{name}_norm1")(y)
    y = layers.DepthwiseConv1D(3, padding="same", dilation_rate=dilation, name=f"{name}_depthwise")(y)
    y = layers.PReLU(
        shared_axes=[1], alpha_initializer=keras.initializers.Constant(0.25), name=f"{name}_prelu2"
    )(y)
    y = GlobalNorm(name=f"{name}_norm2")(y)
    return x + layers.Conv1D(WIDTH, 1, name=f"{name}_out")(y)


def build():
    mixture = keras.Input((80,), name="mixture")
    code = layers.Conv1D(FILTERS, 8, strides=4, use_bias=False, activation="relu", name="encoder")(
        mixture[..., None]
    )
    x = GlobalNorm(name="norm")(code)
    x = layers.Conv1D(WIDTH, 1, name="bottleneck")(x)
    for i, dilation in enumerate((1, 2, 4)):
        x = block(x, dilation, f"block{i}")
    masks = layers.Conv1D(2 * FILTERS, 1, activation="sigmoid", name="masks")(x)
    decoder = layers.Conv1DTranspose(1, 8, strides=4, use_bias=False, name="decoder")
    voices = [decoder(code * masks[..., i * FILTERS : (i + 1) * FILTERS])[..., 0] for i in range(2)]
    return keras.Model(mixture, ops.stack(voices, axis=1))


def snr(source, estimate):
    source = source - ops.mean(source, axis=-1, keepdims=True)
    estimate = estimate - ops.mean(estimate, axis=-1, keepdims=True)
    scale = ops.sum(source * estimate, axis=-1, keepdims=True) / ops.sum(
        source * source, axis=-1, keepdims=True
    )
    target = scale * source
    ratio = ops.sum(ops.square(target), axis=-1) / (ops.sum(ops.square(estimate - target), axis=-1) + 1e-6)
    return 10.0 / float(np.log(10.0)) * ops.log(ratio + 1e-6)


def loss(sources, voices):
    straight = -ops.mean(snr(sources, voices), axis=1)
    crossed = -ops.mean(snr(sources, voices[:, ::-1]), axis=1)
    return ops.minimum(straight, crossed)
