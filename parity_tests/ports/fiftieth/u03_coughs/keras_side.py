"""Coughs from log-mel frames: broadcasted residuals with sub-spectral norm (after BC-ResNet), pre-activated."""

import keras
from keras import layers, ops


class SubSpectralNorm(layers.Layer):
    def __init__(self, bands, **kw):
        super().__init__(**kw)
        self.bands = bands
        self.norm = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)

    def call(self, x, training=None):
        _, f, t, c = x.shape
        s = self.bands
        x = ops.reshape(x, (-1, s, f // s, t, c))
        x = ops.transpose(x, (0, 2, 3, 4, 1))
        x = self.norm(ops.reshape(x, (-1, f // s, t, c * s)), training=training)
        x = ops.reshape(x, (-1, f // s, t, c, s))
        return ops.reshape(ops.transpose(x, (0, 4, 1, 2, 3)), (-1, f, t, c))


class BroadcastBlock(layers.Layer):
    def __init__(self, channels, dilation, bands=4, change=False, **kw):
        super().__init__(**kw)
        self.entry = layers.Conv2D(channels, 1, use_bias=False) if change else None
        self.freq = layers.DepthwiseConv2D((3, 1), padding="same", use_bias=False)
        self.ssn = SubSpectralNorm(bands)
        self.time = layers.DepthwiseConv2D(
            (1, 3), padding="same", dilation_rate=(1, dilation), use_bias=False
        )
        self.norm = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)
        self.mix = layers.Conv2D(channels, 1)

    def call(self, x, training=None):
        if self.entry is not None:
            x = self.entry(x)
        h = ops.relu(x)
        f = self.ssn(self.freq(h), training=training)
        z = ops.mean(f, axis=1, keepdims=True)
        z = ops.silu(self.norm(self.time(z), training=training))
        return x + f + self.mix(z)


class CoughNet(keras.Model):
    def __init__(self, classes=4):
        super().__init__()
        self.stem = layers.Conv2D(8, (5, 5), strides=(2, 1), padding="same", use_bias=False)
        self.stem_norm = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)
        self.blocks = [
            BroadcastBlock(8, 1, name="b0"),
            BroadcastBlock(12, 1, change=True, name="b1"),
            BroadcastBlock(12, 2, name="b2"),
            BroadcastBlock(16, 4, change=True, name="b3"),
        ]
        self.last = layers.DepthwiseConv2D((5, 5), padding="valid")
        self.head = layers.Dense(classes)

    def call(self, frames, training=None):
        x = ops.transpose(frames, (0, 2, 1))[..., None]
        x = self.stem_norm(self.stem(x), training=training)
        for block in self.blocks:
            x = block(x, training=training)
        x = ops.relu(self.last(x))
        return self.head(ops.mean(x, axis=(1, 2)))


def build():
    model = CoughNet()
    model(ops.zeros((2, 40, 32)))
    return model
