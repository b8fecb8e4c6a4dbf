"""Translation with teacher forcing: masked LSTM encoder, LSTM decoder, dot attention."""

import keras
from keras import layers


def build():
    source = keras.Input((9,), dtype="int32", name="source")
    before = keras.Input((7,), dtype="int32", name="before")
    words = layers.Embedding(30, 16, mask_zero=True)(source)
    memory, h, c = layers.LSTM(24, return_sequences=True, return_state=True)(words)
    states = layers.LSTM(24, return_sequences=True)(layers.Embedding(25, 12)(before), initial_state=[h, c])
    context = layers.Attention()([states, memory])
    x = layers.Concatenate()([context, states])
    x = layers.Dense(20, activation="tanh")(x)
    return keras.Model([source, before], layers.Dense(25)(x))
