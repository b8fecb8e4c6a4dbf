"""Topic of a support ticket: Kim-style convolutions over word embeddings (tickets padded with id 0)."""

import keras
from keras import layers

VOCAB, LENGTH, TOPICS = 60, 24, 5


def build():
    tokens = keras.Input((LENGTH,), dtype="int32", name="tokens")
    x = layers.Embedding(VOCAB, 16, name="words")(tokens)
    pooled = []
    for k in (2, 3, 4):
        c = layers.Conv1D(12, k, activation="relu", name=f"conv{k}")(x)
        pooled.append(layers.GlobalMaxPooling1D(name=f"max{k}")(c))
    pooled.append(layers.GlobalAveragePooling1D(name="bag")(x))
    h = layers.Concatenate(name="features")(pooled)
    h = layers.Dropout(0.3, name="drop")(h)
    h = layers.Dense(20, activation="elu", name="hidden")(h)
    out = layers.Dense(TOPICS, name="logits")(h)
    return keras.Model(tokens, out, name="tickets")
