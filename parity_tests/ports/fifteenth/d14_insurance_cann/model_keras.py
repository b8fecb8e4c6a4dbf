"""CANN for motor claims: a network that corrects a GLM's frequency, with exposure as offset."""

import keras
import numpy as np
from keras import layers

MEANS = np.array([7.0, 11.0, 45.0, 60.0, 6.0, 3.5])
VARIANCES = np.array([9.0, 30.0, 200.0, 225.0, 4.0, 6.0])
BRANDS, REGIONS = 11, 22


class GLMOffset(layers.Layer):
    """log exposure + the GLM's linear predictor, weighed by a trained credibility."""

    def build(self, *shapes):
        self.credibility = self.add_weight(shape=(), initializer="ones", name="credibility")

    def call(self, correction, log_glm, exposure):
        return correction + self.credibility * log_glm + keras.ops.log(exposure)


def build():
    numeric = keras.Input((6,), name="numeric")
    brand = keras.Input((1,), dtype="int32", name="brand")
    region = keras.Input((1,), dtype="int32", name="region")
    log_glm = keras.Input((1,), name="log_glm")
    exposure = keras.Input((1,), name="exposure")

    z = layers.Normalization(mean=MEANS, variance=VARIANCES)(numeric)
    b = layers.Flatten()(layers.Embedding(BRANDS, 2, name="brand_embedding")(brand))
    r = layers.Flatten()(layers.Embedding(REGIONS, 3, name="region_embedding")(region))
    x = layers.Concatenate()([z, b, r])
    for units in (20, 15, 10):
        h = layers.Dense(units, activation="tanh")(x)
        h = layers.LayerNormalization(epsilon=1e-4)(h)
        x = layers.Concatenate()([layers.Dropout(0.05)(h), b, r])
    correction = layers.Dense(1, kernel_initializer="random_normal", name="correction")(x)
    eta = GLMOffset()(correction, log_glm, exposure)
    frequency = layers.Activation("exponential", name="claims")(eta)

    model = keras.Model([numeric, brand, region, log_glm, exposure], frequency)
    model.compile(keras.optimizers.Nadam(2e-3), loss="poisson")
    return model


training_loss = keras.losses.Poisson()
