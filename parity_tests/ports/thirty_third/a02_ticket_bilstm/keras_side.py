"""Support tickets: which of four queues does this ticket concern (multi-label)."""

import keras
from keras import layers

VOCAB, LENGTH, CHANNELS, LABELS = 60, 14, 3, 4


def build():
    tokens = keras.Input((LENGTH,), dtype="int32", name="tokens")
    channel = keras.Input((), dtype="int32", name="channel")

    x = layers.Embedding(VOCAB, 16, mask_zero=True, name="words")(tokens)
    x = layers.SpatialDropout1D(0.2)(x)
    x = layers.Bidirectional(layers.LSTM(12, return_sequences=True), name="context")(x)
    x = layers.GlobalAveragePooling1D()(x)

    c = layers.Embedding(CHANNELS, 4, name="channel_embedding")(channel)
    x = layers.Concatenate()([x, c])
    x = layers.Dense(16, activation="tanh", name="hidden")(x)
    x = layers.Dropout(0.3)(x)
    return keras.Model([tokens, channel], layers.Dense(LABELS, name="queues")(x), name="ticket_tagger")
