"""Drug levels after oral doses: a network gives the rates of a two-compartment model for each patient.

Levels below the limit of quantification are censored (M3 likelihood), visits may be missing.
"""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

TYPICAL = np.log([1.1, 0.25, 0.12, 0.08, 18.0]).astype(np.float32)  # ka, ke, k12, k21, volume
CENTRE = np.array([72.0, 48.0, 88.0, 0.5], np.float32)
SPREAD = np.array([14.0, 16.0, 25.0, 0.5], np.float32)
LIMIT = 0.15
SUBSTEPS = 3


class Compartments(layers.Layer):
    """Amounts in gut, centre and tissue; a fourth-order Runge-Kutta integration between visits."""

    def call(self, doses, hours, rates):
        ka, ke, k12, k21, volume = [rates[:, i] for i in range(5)]

        def slope(a):
            gut, centre, tissue = a
            return (-ka * gut, ka * gut - (ke + k12) * centre + k21 * tissue, k12 * centre - k21 * tissue)

        def ahead(a, k, h):
            return tuple(x + h * y for x, y in zip(a, k))

        def visit(a, inputs):
            dose, dt = inputs
            a = (a[0] + dose, a[1], a[2])
            h = dt / SUBSTEPS
            for _ in range(SUBSTEPS):
                k1 = slope(a)
                k2 = slope(ahead(a, k1, h / 2))
                k3 = slope(ahead(a, k2, h / 2))
                k4 = slope(ahead(a, k3, h))
                a = tuple(x + h / 6 * (p + 2 * q + 2 * r + s) for x, p, q, r, s in zip(a, k1, k2, k3, k4))
            return a

        zero = ops.zeros_like(ka)
        _, centre, _ = tf.scan(visit, (ops.transpose(doses), ops.transpose(hours)), (zero, zero, zero))
        return ops.transpose(centre / volume)


class Patients(keras.Model):
    def __init__(self):
        super().__init__(name="pkdoses")
        self.body = keras.Sequential(
            [layers.Dense(16, activation="swish"), layers.Dense(16, activation="swish")]
        )
        self.effects = layers.Dense(5, kernel_initializer="glorot_normal")
        self.integrate = Compartments()
        self.noise = self.add_weight(
            shape=(2,), initializer=keras.initializers.Constant([-1.2, -2.0]), name="noise"
        )

    def call(self, inputs):
        doses, hours, person = inputs["doses"], inputs["hours"], inputs["person"]
        z = (person - CENTRE) / SPREAD
        effects = 0.5 * ops.tanh(self.effects(self.body(z)))
        # volume and elimination scale with weight
        size = ops.log(person[:, :1] / 70.0)
        scale = size * np.array([0.0, -0.25, -0.25, -0.25, 1.0], np.float32)
        levels = self.integrate(doses, hours, ops.exp(TYPICAL + effects + scale))
        sd = ops.sqrt(ops.square(levels * ops.exp(self.noise[0])) + ops.exp(2.0 * self.noise[1]))
        return ops.stack([levels, sd], axis=-1)


def loss(targets, outputs):
    """Targets: level, censored, seen."""
    targets = ops.cast(targets, outputs.dtype)
    level, censored, seen = targets[..., 0], targets[..., 1], targets[..., 2]
    mean, sd = outputs[..., 0], outputs[..., 1]
    exact = 0.5 * ops.square((level - mean) / sd) + ops.log(sd) + 0.5 * np.log(2 * np.pi)
    below = 0.5 * tf.math.erfc((mean - LIMIT) / (sd * np.sqrt(2.0)))
    each = ops.where(censored > 0.5, -ops.log(below), exact)
    return ops.sum(each * seen, axis=-1) / ops.sum(seen, axis=-1)


def build():
    model = Patients()
    model(
        {
            "doses": np.zeros((2, 12), "float32"),
            "hours": np.ones((2, 12), "float32"),
            "person": np.ones((2, 4), "float32"),
        }
    )
    return model
