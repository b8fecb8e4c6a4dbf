import keras
import numpy as np
from keras import layers


def load_vectors(vocab=70, dim=10):
    return np.random.RandomState(3).normal(0.0, 0.4, (vocab, dim))


def build(classes=3):
    vectors = load_vectors()
    text = keras.Input((18,), dtype="int32", name="text")
    x = layers.Embedding(*vectors.shape, embeddings_initializer=keras.initializers.Constant(vectors))(text)
    x = layers.Conv1D(16, 3, activation="relu")(x)
    x = layers.MaxPooling1D(2)(x)
    x = layers.Bidirectional(layers.LSTM(8, return_sequences=True))(x)
    x = layers.Bidirectional(layers.LSTM(7))(x)
    x = layers.Dense(12, activation="relu")(x)
    return keras.Model(text, layers.Dense(classes)(x))
