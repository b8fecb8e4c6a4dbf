import keras
import numpy as np
from keras import layers, ops

# nominal gain of the detectors, one a band
GAIN = np.linspace(0.8, 1.25, 20, dtype=np.float32)


class SpectralAttention(layers.Layer):
    """Softmax over the bands from spatially averaged features."""

    def __init__(self, hidden=6, **kw):
        super().__init__(**kw)
        self.squeeze = layers.Dense(hidden, activation="tanh", name="squeeze")
        self.score = layers.Dense(1, use_bias=False, name="score")

    def call(self, x):  # (n, h, w, bands, c)
        s = ops.mean(x, axis=(1, 2))
        a = ops.softmax(self.score(self.squeeze(s)), axis=1)
        bands = x.shape[3]
        return x * (1.0 + bands * a[:, None, None])


def build():
    inp = keras.Input((7, 7, 20), name="cube")
    x = layers.Lambda(lambda t: t / GAIN, name="calibrate")(inp)
    x = layers.Reshape((7, 7, 20, 1))(x)
    x = layers.Conv3D(8, (3, 3, 5), use_bias=False, name="spec1")(x)
    x = layers.BatchNormalization(name="bn1")(x)
    x = layers.LeakyReLU(name="act1")(x)
    x = layers.Conv3D(12, 3, strides=(1, 1, 2), padding="same", name="spec2")(x)
    x = layers.BatchNormalization(momentum=0.9, name="bn2")(x)
    x = layers.LeakyReLU(negative_slope=0.1, name="act2")(x)
    x = SpectralAttention(name="attention")(x)
    x = layers.Reshape((5, 5, -1))(x)
    x = layers.Conv2D(24, 1, activation="silu", name="mix")(x)
    x = layers.DepthwiseConv2D(3, padding="same", name="dw")(x)
    mid = layers.Cropping2D(2)(x)
    mid = layers.Flatten()(mid)
    ctx = layers.GlobalMaxPooling2D()(x)
    z = layers.Concatenate()([mid, ctx])
    z = layers.Dense(32, activation="relu", name="fc")(z)
    return keras.Model(inp, layers.Dense(6, name="logits")(z), name="hyper3d")
