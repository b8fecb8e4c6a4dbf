"""Spoken words from log-mel spectrograms (time, mel band, 1)."""

from keras import Sequential, layers


def words_net(classes=5, width=8):
    model = Sequential(name="words")
    model.add(layers.Input((24, 16, 1)))
    for i, filters in enumerate([width, 2 * width]):
        model.add(layers.Conv2D(filters, (5, 3), padding="same", use_bias=False, name=f"conv{i}"))
        model.add(layers.BatchNormalization(name=f"norm{i}"))
        model.add(layers.ReLU(name=f"relu{i}"))
        model.add(layers.MaxPooling2D((2, 2), name=f"pool{i}"))
        model.add(layers.Dropout(0.15, name=f"drop{i}"))
    model.add(layers.Reshape((6, 4 * 2 * width), name="frames"))
    model.add(layers.Dense(16, activation="tanh", name="per_frame"))
    model.add(layers.GlobalAveragePooling1D(name="mean"))
    model.add(layers.Dense(classes, name="word"))
    return model
