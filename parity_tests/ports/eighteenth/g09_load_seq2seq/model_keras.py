import keras
from keras.layers import LSTM, Dense, Input, Reshape, TimeDistributed

UNITS = 12


def build():
    # encoder
    history = Input(shape=(12, 4), name="history")
    enc = LSTM(UNITS, return_sequences=True, name="encoder_1")(history)
    _, state_h, state_c = LSTM(UNITS, return_state=True, name="encoder_2")(enc)

    # decoder
    calendar = Input(shape=(6, 3), name="calendar")
    dec = LSTM(UNITS, return_sequences=True, name="decoder")(calendar, initial_state=[state_h, state_c])
    out = TimeDistributed(Dense(8, activation="relu"), name="hidden")(dec)
    out = TimeDistributed(Dense(1), name="load")(out)
    out = Reshape((6,), name="curve")(out)
    return keras.Model(inputs=[history, calendar], outputs=out)


def optimizer():
    return keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.2, decay_steps=40, alpha=0.1))
