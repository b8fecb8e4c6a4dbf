import keras
from keras import layers


def build(vocab=60, tags=7):
    return keras.Sequential(
        [
            keras.Input((14,), dtype="int32", name="tokens"),
            layers.Embedding(vocab, 12),
            layers.Bidirectional(layers.GRU(10, return_sequences=True)),
            layers.Conv1D(16, 3, padding="same", activation="relu"),
            layers.LayerNormalization(),
            layers.GRU(8, return_sequences=True),
            layers.TimeDistributed(layers.Dense(12, activation="tanh")),
            layers.TimeDistributed(layers.Dense(tags)),
        ]
    )
