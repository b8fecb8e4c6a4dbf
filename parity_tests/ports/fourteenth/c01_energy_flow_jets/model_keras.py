"""Energy flow network: tags jets from their constituents (pt, eta, phi), padded with zeros."""

import keras
from keras import layers, ops

MAX_CONSTITUENTS = 12


class RunningStandardizer(layers.Layer):
    """Standardises features with running statistics of the real constituents."""

    def __init__(self, momentum=0.9, epsilon=1e-5, **kwargs):
        super().__init__(**kwargs)
        self.momentum = momentum
        self.epsilon = epsilon

    def build(self, features_shape, real_shape):
        width = (features_shape[-1],)
        self.mean = self.add_weight(shape=width, initializer="zeros", trainable=False, name="mean")
        self.variance = self.add_weight(shape=width, initializer="ones", trainable=False, name="variance")

    def call(self, features, real, training=False):
        if training:
            weight = real[..., None]
            count = ops.maximum(ops.sum(weight), 1.0)
            mean = ops.sum(features * weight, axis=(0, 1)) / count
            variance = ops.sum(ops.square(features - mean) * weight, axis=(0, 1)) / count
            self.mean.assign(self.momentum * self.mean + (1 - self.momentum) * mean)
            self.variance.assign(self.momentum * self.variance + (1 - self.momentum) * variance)
        return (features - self.mean) * ops.rsqrt(self.variance + self.epsilon)

    def compute_output_shape(self, features_shape, real_shape):
        return features_shape


class EnergyFlow(layers.Layer):
    """Sum of the constituents' features, each weighted with its share of the momentum."""

    def call(self, pt, features):
        share = pt / ops.maximum(ops.sum(pt, axis=1, keepdims=True), 1e-6)
        return ops.sum(share[..., None] * features, axis=1)

    def compute_output_shape(self, pt_shape, features_shape):
        return (features_shape[0], features_shape[2])


def build():
    jets = keras.Input((MAX_CONSTITUENTS, 3), name="jets")
    pt = jets[..., 0]
    real = ops.cast(pt > 0, jets.dtype)
    x = RunningStandardizer(name="standardize")(jets[..., 1:], real)
    for i, width in enumerate((24, 16)):
        x = layers.Dense(width, activation="elu", name=f"phi_{i}")(x)
    x = EnergyFlow(name="flow")(pt, x)
    multiplicity = ops.sum(real, axis=1, keepdims=True) / MAX_CONSTITUENTS
    x = layers.Concatenate()([x, multiplicity])
    x = layers.Dense(16, activation="elu", name="head")(x)
    return keras.Model(jets, layers.Dense(1, name="logit")(x), name="efn")


def loss(y_true, y_pred):
    return keras.losses.binary_crossentropy(y_true, y_pred, from_logits=True)
