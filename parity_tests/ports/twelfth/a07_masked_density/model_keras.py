"""The density of physical measurements, one after another, given the detector (MADE)."""

import keras
import numpy as np
from keras import layers, ops

FEATURES, HIDDEN = 6, 20


def degrees():
    inputs = np.arange(1, FEATURES + 1)
    hidden = 1 + np.arange(HIDDEN) % (FEATURES - 1)
    return inputs, hidden


class MaskedDense(layers.Layer):
    def __init__(self, mask, activation=None, **kwargs):
        super().__init__(**kwargs)
        self.mask_array = mask
        self.activation = keras.activations.get(activation)

    def build(self, shape):
        self.kernel = self.add_weight(
            shape=self.mask_array.shape, initializer="glorot_uniform", name="kernel"
        )
        self.bias = self.add_weight(shape=self.mask_array.shape[1:], initializer="zeros", name="bias")

    def compute_output_shape(self, shape):
        return (*shape[:-1], self.mask_array.shape[1])

    def call(self, x):
        mask = ops.convert_to_tensor(self.mask_array, dtype=self.kernel.dtype)
        return self.activation(ops.matmul(x, self.kernel * mask) + self.bias)


def build():
    first, hidden = degrees()
    x = keras.Input((FEATURES,), name="x")
    detector = keras.Input((), dtype="int32", name="detector")
    h = MaskedDense(first[:, None] <= hidden[None], name="hidden1")(x)
    h = h + layers.Embedding(3, HIDDEN, name="condition")(detector)
    h = layers.Activation("elu")(h)
    h = MaskedDense(hidden[:, None] <= hidden[None], "elu", name="hidden2")(h)
    mean = MaskedDense(hidden[:, None] < first[None], name="mean")(h)
    scale = MaskedDense(hidden[:, None] < first[None], name="log_scale")(h)
    return keras.Model([x, detector], ops.stack([mean, 2 * ops.tanh(scale)], axis=-1))


def loss(y, output):
    mean, log_scale = output[..., 0], output[..., 1]
    z = (y - mean) * ops.exp(-log_scale)
    return ops.sum(0.5 * ops.square(z) + log_scale, axis=-1) + 0.5 * FEATURES * float(np.log(2 * np.pi))
