"""Vital signs of the next hours under a given plan of treatment, from stays of different lengths."""

import keras
from keras import layers

PAST, SIGNS, AHEAD, PLAN, UNITS = 14, 5, 4, 3, 18


def build():
    past = keras.Input((PAST, SIGNS), name="past")
    plan = keras.Input((AHEAD, PLAN), name="plan")

    signs = layers.Masking(mask_value=0.0, name="stay")(past)
    signs = layers.Dense(12, activation="tanh", name="signs")(signs)
    states, hidden, cell = layers.LSTM(UNITS, return_sequences=True, return_state=True, name="encoder")(signs)
    ahead = layers.LSTM(UNITS, return_sequences=True, name="decoder")(plan, initial_state=[hidden, cell])
    recalled = layers.AdditiveAttention(name="recall")([ahead, states])
    x = layers.Concatenate(name="both")([ahead, recalled])
    x = layers.Dropout(0.1, name="drop")(layers.Dense(20, activation="relu", name="merge")(x))
    pulse = layers.Dense(1, name="pulse")(x)
    alarm = layers.Dense(3, name="alarm")(layers.GlobalMaxPooling1D(name="worst")(x))
    return keras.Model([past, plan], {"pulse": pulse, "alarm": alarm}, name="ward")
