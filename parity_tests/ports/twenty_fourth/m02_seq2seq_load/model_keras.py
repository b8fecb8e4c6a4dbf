"""Day-ahead electricity load forecaster, encoder-decoder with attention.

The encoder reads 24 hours of (load, temperature, wind); the decoder gets the
previous load (teacher forcing) and the temperature forecast for 8 hours.

Inputs
    past    (24, 3)  load, temperature and wind, standardised per substation
    future  (8, 2)   load one hour earlier, temperature forecast
Output
    load    (8, 1)   standardised load of the hour
"""

import keras
from keras import layers

HISTORY, HORIZON = 24, 8
ENC_UNITS = 10
DEC_UNITS = 2 * ENC_UNITS


def build():
    past = keras.Input((HISTORY, 3), name="past")
    future = keras.Input((HORIZON, 2), name="future")

    encoder = layers.Bidirectional(
        layers.LSTM(ENC_UNITS, return_sequences=True, return_state=True),
        merge_mode="concat",
        name="encoder",
    )
    memory, fwd_h, fwd_c, bwd_h, bwd_c = encoder(past)
    state_h = layers.Concatenate(name="state_h")([fwd_h, bwd_h])
    state_c = layers.Concatenate(name="state_c")([fwd_c, bwd_c])

    decoded = layers.LSTM(DEC_UNITS, return_sequences=True, name="decoder")(
        future, initial_state=[state_h, state_c]
    )
    query = layers.Dense(DEC_UNITS, use_bias=False, name="query")(decoded)
    context = layers.Attention(name="attention")([query, memory])

    x = layers.Concatenate(name="attended")([context, decoded])
    x = layers.Dense(16, activation="tanh", name="combine")(x)
    load = layers.Dense(1, name="load")(x)
    return keras.Model([past, future], load, name="load_forecaster")
