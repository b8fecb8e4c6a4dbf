"""ICU stays: hourly vitals, right padded with zeros, predict mortality."""

import keras
from keras import layers

STEPS, VITALS = 24, 6


def build():
    model = keras.Sequential(name="icu_mortality")
    model.add(keras.Input((STEPS, VITALS), name="x"))
    model.add(layers.Masking(mask_value=0.0))
    model.add(layers.Bidirectional(layers.GRU(14), merge_mode="concat", name="stay"))
    model.add(layers.LayerNormalization(epsilon=1e-5, name="norm"))
    model.add(layers.Dense(16, activation="tanh", name="fc"))
    model.add(layers.Dense(1, name="risk"))
    return model
