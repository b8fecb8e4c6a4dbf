import keras
from keras import layers


def build():
    vitals = keras.Input((20, 7), name="vitals")
    patient = keras.Input((4,), name="patient")

    x = layers.Masking(mask_value=0.0)(vitals)
    x = layers.Bidirectional(layers.GRU(10, return_sequences=True))(x)
    x = layers.Bidirectional(layers.GRU(10))(x)

    who = layers.Dense(8, activation="tanh")(patient)
    x = layers.Concatenate()([x, who])
    x = layers.Dense(16, activation="relu")(x)
    risk = layers.Dense(1)(x)
    return keras.Model([vitals, patient], risk)
