import keras
from keras import layers, ops


class DuelingDQN(keras.Model):
    def __init__(self, actions=5, **kwargs):
        super().__init__(**kwargs)
        self.convs = [
            layers.Conv2D(8, 5, strides=3, activation="relu"),
            layers.Conv2D(12, 3, strides=2, activation="relu"),
            layers.Conv2D(12, 2, activation="relu"),
        ]
        self.flatten = layers.Flatten()
        self.value_hidden = layers.Dense(24, activation="relu")
        self.value = layers.Dense(1)
        self.advantage_hidden = layers.Dense(24, activation="relu")
        self.advantage = layers.Dense(actions)

    def call(self, frames):
        x = frames / 255.0
        for conv in self.convs:
            x = conv(x)
        x = self.flatten(x)
        value = self.value(self.value_hidden(x))
        advantage = self.advantage(self.advantage_hidden(x))
        return value + advantage - ops.mean(advantage, axis=1, keepdims=True)


def build(actions=5):
    frames = keras.Input((29, 29, 4), name="frames")
    return keras.Model(frames, DuelingDQN(actions)(frames))
