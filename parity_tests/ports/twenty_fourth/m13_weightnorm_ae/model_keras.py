"""Denoising autoencoder for near-infrared spectra (40 bands).

The decoder uses the transposed weights of the encoder. Weights are
normalised per output unit: w = g * v / |v|.
"""

import keras
from keras import layers, ops

BANDS = 40
WIDTHS = (24, 8)


class WeightNormDense(layers.Layer):
    """Dense layer with direction v (in, out) and length g (out,)."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, input_shape):
        self.v = self.add_weight(
            shape=(input_shape[-1], self.units),
            initializer=keras.initializers.RandomNormal(stddev=0.3),
            name="v",
        )
        self.g = self.add_weight(shape=(self.units,), initializer="ones", name="g")
        self.bias = self.add_weight(shape=(self.units,), initializer="zeros", name="bias")

    def weight(self):
        length = ops.sqrt(ops.sum(ops.square(self.v), axis=0))
        return self.v * (self.g / length)

    def call(self, x):
        return ops.matmul(x, self.weight()) + self.bias


class Autoencoder(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.enc1 = WeightNormDense(WIDTHS[0], name="enc1")
        self.enc2 = WeightNormDense(WIDTHS[1], name="enc2")
        self.dec_bias2 = self.add_weight(shape=(WIDTHS[0],), initializer="zeros", name="dec_bias2")
        self.dec_bias1 = self.add_weight(shape=(BANDS,), initializer="zeros", name="dec_bias1")

    def encode(self, x):
        return self.enc2(ops.elu(self.enc1(x)))

    def decode(self, code):
        h = ops.matmul(ops.softsign(code), ops.transpose(self.enc2.weight()))
        h = ops.elu(h + self.dec_bias2)
        return ops.matmul(h, ops.transpose(self.enc1.weight())) + self.dec_bias1

    def call(self, x):
        return self.decode(self.encode(x))


def build():
    model = Autoencoder(name="spectra_ae")
    model(ops.zeros((1, BANDS)))
    return model
