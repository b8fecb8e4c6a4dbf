"""Two-stage Takagi-Sugeno network: strength and shrinkage of fired bricks from kiln readings."""

import numpy as np
import tensorflow as tf
import tf_keras as keras
from tf_keras import backend as K

TERMS = 3
ANY = -1

# one row a rule: the term (0 low, 1 middle, 2 high) that each reading must have
FIRING_RULES = np.array(
    [
        # peak soak ramp oxygen clay moisture
        [2, 2, ANY, ANY, 1, ANY],
        [2, 0, ANY, ANY, ANY, ANY],
        [1, 1, 1, ANY, ANY, ANY],
        [0, ANY, ANY, ANY, ANY, ANY],
        [0, 2, ANY, 1, ANY, ANY],
        [ANY, ANY, 2, ANY, ANY, 2],
        [ANY, ANY, 0, ANY, ANY, 2],
        [ANY, ANY, ANY, 2, 2, ANY],
        [ANY, ANY, ANY, 0, 2, ANY],
        [1, ANY, ANY, ANY, 0, 0],
        [2, ANY, 1, 0, ANY, 1],
        [ANY, 1, ANY, ANY, ANY, 0],
    ],
    np.int32,
)

QUALITY_RULES = np.array(
    [
        # vitrification gas cracks porosity
        [0, ANY, 0, ANY],
        [0, ANY, 2, ANY],
        [2, ANY, ANY, 0],
        [2, 1, ANY, 2],
        [ANY, 0, 1, ANY],
        [ANY, 2, ANY, 1],
        [1, 1, 1, 1],
    ],
    np.int32,
)


class FuzzyRules(keras.layers.Layer):
    def __init__(self, table, units, **kwargs):
        super().__init__(**kwargs)
        self.table = table
        self.units = units

    def build(self, input_shape):
        d = int(input_shape[-1])
        rules = len(self.table)
        grid = np.tile(np.linspace(-1.5, 1.5, TERMS), (d, 1))
        self.centres = self.add_weight(
            "centres", (d, TERMS), initializer=lambda shape, dtype=None: K.constant(grid, dtype)
        )
        self.widths = self.add_weight(
            "widths", (d, TERMS), initializer=keras.initializers.RandomUniform(0.7, 1.3)
        )
        self.slopes = self.add_weight(
            "slopes", (d, TERMS), initializer=keras.initializers.RandomUniform(0.8, 1.6)
        )
        self.trust = self.add_weight("trust", (rules,), initializer="zeros")
        self.kernel = self.add_weight(
            "kernel", (rules, d, self.units), initializer=keras.initializers.RandomNormal(0, 0.3)
        )
        self.bias = self.add_weight(
            "bias", (rules, self.units), initializer=keras.initializers.RandomNormal(0, 0.3)
        )
        self.antecedents = K.constant(np.stack([self.table == t for t in range(TERMS)], axis=-1))
        super().build(input_shape)

    def call(self, x):
        distance = K.square((K.expand_dims(x) - self.centres) / self.widths)
        grade = 1.0 / (1.0 + tf.pow(distance + 1e-4, self.slopes))
        fired = tf.einsum("bdt,rdt->br", K.log(grade), self.antecedents)
        share = K.softmax(fired + self.trust)
        rules = tf.einsum("bd,rdu->bru", x, self.kernel) + self.bias
        return K.sum(K.expand_dims(share) * rules, axis=1)


class KilnModel(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.firing = FuzzyRules(FIRING_RULES, 4, name="firing")
        self.quality = FuzzyRules(QUALITY_RULES, 2, name="quality")
        self.trend = keras.layers.Dense(2, use_bias=False, name="trend")

    def call(self, readings, training=None):
        latent = 2.0 * K.tanh(self.firing(readings))
        return self.quality(latent) + self.trend(readings)


def build():
    model = KilnModel(name="kiln")
    model(K.zeros((1, FIRING_RULES.shape[1])))
    return model
