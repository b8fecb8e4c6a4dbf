"""Mult-DAE (Liang et al. 2018): recommendations from the items a user clicked, with the decoder tied to the encoder."""

import keras
from keras import layers, ops


class TiedDense(layers.Layer):
    def __init__(self, source, **kwargs):
        super().__init__(**kwargs)
        self.source = source

    def build(self, shape):
        self.bias = self.add_weight(shape=(self.source.kernel.shape[0],), initializer="zeros", name="bias")

    def call(self, x):
        return ops.matmul(x, ops.transpose(self.source.kernel)) + self.bias


class MultDAE(keras.Model):
    def __init__(self, items=50, groups=4, hidden=24, latent=10):
        super().__init__()
        self.normalise = layers.UnitNormalization()
        self.corrupt = layers.Dropout(0.5)
        self.encode = layers.Dense(hidden, activation="tanh", name="encode")
        self.bottleneck = layers.Dense(latent, name="bottleneck")
        self.shift = layers.Embedding(groups, latent, name="group_shift")
        self.gain = layers.Embedding(groups, latent, embeddings_initializer="zeros", name="group_gain")
        self.expand = TiedDense(self.bottleneck, name="expand")
        self.decode = TiedDense(self.encode, name="decode")

    def call(self, inputs, training=False):
        x = self.corrupt(self.normalise(inputs["clicks"]), training=training)
        z = self.bottleneck(self.encode(x))
        z = z * (1 + self.gain(inputs["group"])) + self.shift(inputs["group"])
        return self.decode(ops.tanh(self.expand(z)))


def multinomial(y_true, y_pred):
    """The negative log-likelihood of each user's clicks, over the number of clicks to the half."""
    likelihood = ops.sum(ops.log_softmax(y_pred, axis=-1) * y_true, axis=-1)
    return -likelihood / ops.sqrt(ops.sum(y_true, axis=-1))


def build():
    return MultDAE()
