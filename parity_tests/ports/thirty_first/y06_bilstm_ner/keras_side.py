import keras
from keras import layers, ops

VOCAB, TAGS = 60, 5


def build():
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            layers.Embedding(VOCAB, 12, mask_zero=True),
            layers.Bidirectional(layers.LSTM(10, return_sequences=True)),
            layers.Dropout(0.2),
            layers.TimeDistributed(layers.Dense(16, activation="tanh")),
            layers.TimeDistributed(layers.Dense(TAGS)),
        ],
        name="tagger",
    )
    return model


def loss(y_true, y_pred):
    # padding carries label -100; Keras weights it out by the mask of the embedding
    labels = ops.maximum(ops.cast(y_true, "int32"), 0)
    return ops.sparse_categorical_crossentropy(labels, y_pred, from_logits=True)
