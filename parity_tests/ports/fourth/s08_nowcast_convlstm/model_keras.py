import keras
from keras import layers


def build():
    return keras.Sequential(
        [
            keras.Input((5, 9, 9, 2), name="radar"),
            layers.TimeDistributed(
                layers.Conv2D(8, 3, padding="same", activation="relu", name="frame"), name="frames"
            ),
            layers.ConvLSTM2D(10, 3, padding="same", return_sequences=False, name="memory"),
            layers.Conv2D(12, 3, strides=2, padding="valid", activation="relu", name="reduce"),
            layers.GlobalMaxPooling2D(name="peak"),
            layers.Dense(4, name="intensity"),
        ]
    )
