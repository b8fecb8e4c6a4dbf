"""A neural network potential after ANI: radial symmetry functions, a network for each element, trained on forces too."""

import math

import keras
import tensorflow as tf
from keras import layers, ops

ELEMENTS = 3
FORCE_WEIGHT = 0.1


class RadialFunctions(layers.Layer):
    """For each atom and each element of its neighbours, sums of Gaussians of the distances."""

    def __init__(self, centres=(0.8, 1.3, 1.8, 2.3), eta=4.0, cutoff=3.0, **kwargs):
        super().__init__(**kwargs)
        self.centres, self.eta, self.cutoff = centres, eta, cutoff

    def call(self, species, positions):
        atoms = species.shape[1]
        real = ops.cast(species > 0, positions.dtype)
        pairs = real[:, :, None] * real[:, None, :] * (1.0 - ops.eye(atoms, dtype=positions.dtype))
        d = positions[:, :, None] - positions[:, None]
        r = ops.sqrt(ops.sum(d * d, -1) + (1.0 - pairs))
        fade = ops.where(r < self.cutoff, 0.5 * ops.cos(math.pi * r / self.cutoff) + 0.5, 0.0) * pairs
        shells = ops.stack([ops.exp(-self.eta * (r - c) ** 2) * fade for c in self.centres], -1)
        who = ops.one_hot(species, ELEMENTS + 1, dtype=positions.dtype)[..., 1:]
        sums = ops.einsum("bijk,bje->biek", shells, who)
        return ops.reshape(sums, (-1, atoms, ELEMENTS * len(self.centres)))


class Potential(keras.Model):
    def __init__(self):
        super().__init__()
        self.radial = RadialFunctions()
        self.nets = [
            keras.Sequential([layers.Dense(12, activation="tanh"), layers.Dense(1)], name=f"net_{element}")
            for element in "HCO"
        ]
        self.offsets = layers.Embedding(ELEMENTS + 1, 1, name="offsets")
        self.loss_tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.loss_tracker]

    def call(self, inputs):
        species, positions = inputs["species"], inputs["positions"]
        x = self.radial(species, positions)
        each = ops.concatenate([net(x) for net in self.nets], -1)
        mine = ops.one_hot(species, ELEMENTS + 1, dtype=x.dtype)[..., 1:]
        real = ops.cast(species > 0, x.dtype)
        atomic = ops.sum(each * mine, -1) + self.offsets(species)[..., 0] * real
        return ops.sum(atomic, 1)

    def train_step(self, data):
        inputs, targets = data
        atoms = ops.sum(ops.cast(inputs["species"] > 0, self.compute_dtype), 1)
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                inner.watch(inputs["positions"])
                energy = self(inputs)
            forces = -inner.gradient(energy, inputs["positions"])
            energy_loss = ops.mean(
                ops.square(energy - ops.reshape(targets["energy"], (-1,))) / ops.sqrt(atoms)
            )
            squares = ops.sum(ops.square(forces - targets["forces"]), (1, 2))
            force_loss = ops.mean(squares / (3 * atoms))
            loss = energy_loss + FORCE_WEIGHT * force_loss
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}


def build():
    model = Potential()
    model.compile(optimizer=keras.optimizers.Adam(1e-3))
    return model
