"""Small CRNN for reading cropped word images (16x40 grey), CTC trained.

Class 0 is the blank; labels are padded on the right with 0.
"""

import keras
from keras import layers

CLASSES = 11  # blank + ten digits


def build():
    return keras.Sequential(
        [
            keras.Input((16, 40, 1)),
            layers.Conv2D(8, 3, padding="same", activation="relu", name="conv1"),
            layers.MaxPooling2D((2, 2)),
            layers.Conv2D(12, 3, padding="same", activation="relu", name="conv2"),
            layers.MaxPooling2D((2, 1)),
            layers.Conv2D(16, (4, 3), padding="same", strides=(2, 1), use_bias=False, name="conv3"),
            layers.GroupNormalization(4, name="gn"),
            layers.Activation("elu"),
            # height folds into the features, width becomes time
            layers.Permute((2, 1, 3)),
            layers.Reshape((20, 2 * 16)),
            layers.Bidirectional(layers.GRU(12, return_sequences=True), merge_mode="sum", name="rnn1"),
            layers.Bidirectional(layers.GRU(10, return_sequences=True), name="rnn2"),
            layers.Dense(CLASSES, name="chars"),
        ],
        name="crnn",
    )


def ctc_loss(y_true, y_pred):
    return keras.losses.CTC()(y_true, y_pred)
