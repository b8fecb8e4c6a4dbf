import keras
from keras import layers


def build_tagger(vocabulary=90, length=14, tags=5):
    words = keras.Input((length,), dtype="int32", name="words")
    x = layers.Embedding(vocabulary, 24, name="embedding")(words)
    x = layers.GRU(32, return_sequences=True, name="gru1")(x)
    x = layers.GRU(32, return_sequences=True, name="gru2")(x)
    x = layers.TimeDistributed(layers.Dense(24, activation="tanh"), name="project")(x)
    return keras.Model(words, layers.Dense(tags, name="tags")(x), name="tagger")
