"""BiLSTM with attention pooling over the words that are there (0 is padding)."""

import keras
from keras import layers, ops


def build(vocabulary=100, length=18, classes=3):
    words = keras.Input((length,), dtype="int32", name="words")
    x = layers.Embedding(vocabulary, 24, mask_zero=True, name="embedding")(words)
    x = layers.Bidirectional(layers.LSTM(24, return_sequences=True), name="bilstm")(x)
    score = layers.Dense(1, name="score")(layers.Dense(24, activation="tanh", name="attend")(x))
    valid = ops.cast(ops.not_equal(words, 0), score.dtype)[:, :, None]
    weight = layers.Softmax(axis=1, name="weights")(score + (1 - valid) * -1e9)
    pooled = ops.sum(x * weight, axis=1)
    return keras.Model(words, layers.Dense(classes, name="logits")(pooled), name="bilstm_attention")
