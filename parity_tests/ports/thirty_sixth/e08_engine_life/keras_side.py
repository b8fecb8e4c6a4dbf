"""Remaining life of turbofan engines from a window of sensors."""

import keras
from keras import layers, ops

WINDOW, SENSORS = 12, 5


class LifeModel(keras.Model):
    def __init__(self):
        super().__init__(name="engine_life")
        self.smooth = layers.Conv1D(8, 3, padding="causal", activation="relu", name="smooth")
        self.norm = layers.LayerNormalization(name="norm")
        self.low = layers.Bidirectional(layers.LSTM(8, return_sequences=True), name="low")
        self.high = layers.Bidirectional(layers.LSTM(6, return_sequences=True), name="high")
        self.hidden = layers.Dense(12, activation="swish", name="hidden")
        self.life = layers.Dense(1, activation="softplus", name="life")

    def call(self, sensors, training=None):
        x = self.norm(self.smooth(sensors))
        x = self.low(x)
        x = self.high(x)
        now = x[:, -1, :]
        return self.life(self.hidden(now))


def build():
    model = LifeModel()
    model(ops.zeros((1, WINDOW, SENSORS)))
    return model
