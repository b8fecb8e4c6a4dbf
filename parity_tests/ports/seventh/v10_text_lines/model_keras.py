"""Reads a line of characters: convolutions, two bidirectional GRUs, a character (or blank) for every column."""

import keras
from keras import layers, ops

CHARACTERS = 9


def build():
    line = keras.Input((12, 24, 1), name="line")
    x = layers.Conv2D(8, 3, padding="same", activation="relu", name="conv1")(line)
    x = layers.MaxPooling2D((2, 2), name="pool1")(x)
    x = layers.Conv2D(12, 3, padding="same", activation="relu", name="conv2")(x)
    x = layers.MaxPooling2D((2, 1), name="pool2")(x)
    x = layers.SpatialDropout2D(0.1)(x)
    # columns become steps
    x = layers.Permute((2, 1, 3))(x)
    x = layers.Reshape((12, 3 * 12))(x)
    x = layers.Dense(16, activation="relu", name="bottleneck")(x)
    x, *states = layers.Bidirectional(layers.GRU(10, return_sequences=True, return_state=True), name="rnn1")(
        x
    )
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(x)
    # the second reader goes on from where the first one stopped
    x = layers.Bidirectional(layers.GRU(10, return_sequences=True), name="rnn2")(x, initial_state=states)
    x = layers.Dropout(0.2)(x)
    x = layers.Dense(CHARACTERS + 1, name="characters")(x)
    return keras.Model(
        line, layers.Lambda(lambda t: ops.log_softmax(t, axis=-1), name="log_probabilities")(x)
    )
