import keras
from keras import layers


def build():
    return keras.Sequential(
        [
            keras.Input((20,), dtype="int32", name="tokens"),
            layers.Embedding(60, 12, mask_zero=True),
            layers.Bidirectional(layers.LSTM(10)),
            layers.Dense(8, activation="relu"),
            layers.Dropout(0.2),
            layers.Dense(1),
        ]
    )


def loss(y_true, y_pred):
    return keras.ops.mean(keras.losses.binary_crossentropy(y_true, y_pred, from_logits=True))
