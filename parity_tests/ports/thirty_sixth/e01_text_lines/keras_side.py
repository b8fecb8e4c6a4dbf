"""Reads short lines of handwriting: convolutions, a recurrent layer, CTC."""

import keras
from keras import layers, ops

CLASSES = 9  # blank and eight characters


def build():
    image = keras.Input((12, 40, 1), name="image")
    x = layers.Conv2D(6, 3, padding="same", activation="relu", name="conv1")(image)
    x = layers.MaxPooling2D((2, 2), name="pool1")(x)
    x = layers.Conv2D(8, 3, padding="same", activation="relu", name="conv2")(x)
    x = layers.MaxPooling2D((2, 1), name="pool2")(x)  # (3, 20, 8)
    x = layers.Permute((2, 1, 3), name="columns")(x)
    x = layers.Reshape((20, 3 * 8), name="frames")(x)
    x = layers.Dense(16, activation="relu", name="squeeze")(x)
    x = layers.Bidirectional(layers.LSTM(10, return_sequences=True), name="context")(x)
    return keras.Model(image, layers.Dense(CLASSES, name="characters")(x), name="line_reader")


def ctc(labels, logits):
    """Labels are padded with zero, which is the blank too."""
    labels = ops.cast(labels, "int32")
    length = ops.sum(ops.cast(ops.not_equal(labels, 0), "int32"), axis=1)
    frames = ops.full_like(length, ops.shape(logits)[1])
    return ops.mean(ops.ctc_loss(labels, logits, length, frames, mask_index=0))


def optimizer():
    return keras.optimizers.SGD(learning_rate=0.02, momentum=0.9, nesterov=True)
