import keras
from keras import layers


def text_cnn(vocabulary=150, length=24, dim=24, filters=16, widths=(2, 3, 5), classes=3):
    words = keras.Input((length,), dtype="int32", name="words")
    x = layers.Embedding(vocabulary, dim, name="embedding")(words)
    pooled = []
    for w in widths:
        y = layers.Conv1D(filters, w, activation="relu", name=f"conv{w}")(x)
        pooled.append(layers.GlobalMaxPooling1D(name=f"max{w}")(y))
    x = layers.Concatenate(name="concat")(pooled)
    x = layers.Dropout(0.0, name="dropout")(x)
    x = layers.Dense(32, activation="elu", name="hidden")(x)
    return keras.Model(words, layers.Dense(classes, name="logits")(x), name="text_cnn")
