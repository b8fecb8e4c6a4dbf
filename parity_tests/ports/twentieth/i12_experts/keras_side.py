"""Energy use: a layer of four experts, of which the best two answer."""

import keras
from keras import layers, ops


class Mixture(layers.Layer):
    def __init__(self, experts=4, best=2, width=16, **options):
        super().__init__(**options)
        self.count, self.best = experts, best
        self.gate = layers.Dense(experts, use_bias=False, name="gate")
        self.experts = [
            keras.Sequential(
                [keras.Input((width,)), layers.Dense(24, activation="relu"), layers.Dense(width)],
                name=f"expert_{i}",
            )
            for i in range(experts)
        ]

    def build(self, shape):
        self.gate.build(shape)

    def call(self, x):
        values, places = ops.top_k(self.gate(x), self.best)
        share = ops.softmax(values, axis=-1)
        weights = ops.sum(ops.expand_dims(share, -1) * ops.one_hot(places, self.count, dtype=x.dtype), axis=1)
        answers = ops.stack([expert(x) for expert in self.experts], axis=1)
        return ops.sum(ops.expand_dims(weights, -1) * answers, axis=1)


def build():
    inputs = keras.Input((10,))
    h = layers.Dense(16, activation="relu")(inputs)
    h = layers.Add()([h, Mixture()(h)])
    h = layers.LayerNormalization(epsilon=1e-5)(h)
    return keras.Model(inputs, layers.Dense(1)(h))
