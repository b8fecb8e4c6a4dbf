"""Radar nowcast: a convolutional LSTM reads the last frames, a second one draws the next."""

import keras
from keras import layers, ops

SIDE, PAST, FUTURE, CHANNELS = 6, 5, 3, 6


def build():
    # The archive stores a frame as one row.
    past = keras.Input((PAST, SIDE * SIDE), name="past")
    frames = layers.Reshape((PAST, SIDE, SIDE, 1))(past)

    encoder = layers.ConvLSTM2D(CHANNELS, 3, padding="same", return_state=True, name="encoder")
    decoder = layers.ConvLSTM2D(CHANNELS, 3, padding="same", return_state=True, name="decoder")
    draw = layers.Conv2D(1, 1, name="draw")

    _, h, c = encoder(frames)
    frame = frames[:, -1]
    forecast = []
    for _ in range(FUTURE):
        out, h, c = decoder(ops.expand_dims(frame, 1), initial_state=[h, c])
        frame = ops.relu(frame + draw(out))
        forecast.append(ops.reshape(frame, (-1, SIDE * SIDE)))
    return keras.Model(past, ops.stack(forecast, axis=1))


def loss(y_true, y_pred):
    """Heavy rain counts more."""
    weight = 1 + ops.minimum(y_true, 3.0)
    error = ops.abs(y_true - y_pred) + ops.square(y_true - y_pred)
    return ops.mean(weight * error, axis=(1, 2))
