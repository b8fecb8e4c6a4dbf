"""Energies and forces of small molecules: continuous-filter convolutions (SchNet-like), forces by differentiation."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

CUTOFF, RBF, WIDTH = 3.0, 12, 10


def ssp(x):
    """Shifted softplus."""
    return ops.softplus(x) - np.log(2.0)


class Interaction(layers.Layer):
    def __init__(self, width, **kw):
        super().__init__(**kw)
        self.filter1 = layers.Dense(width, activation=ssp, name="filter1")
        self.filter2 = layers.Dense(width, name="filter2")
        self.in2f = layers.Dense(width, use_bias=False, name="in2f")
        self.f2out = layers.Dense(width, activation=ssp, name="f2out")
        self.out = layers.Dense(width, name="out")

    def call(self, h, rbf, weight):
        w = self.filter2(self.filter1(rbf)) * weight[..., None]
        m = ops.sum(w * self.in2f(h)[:, None, :, :], axis=2)
        return h + self.out(self.f2out(m))


class Schnet(keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding = layers.Embedding(3, WIDTH, name="embedding")
        self.interactions = [Interaction(WIDTH, name=f"interaction{i}") for i in range(2)]
        self.atom1 = layers.Dense(8, activation=ssp, name="atom1")
        self.atom2 = layers.Dense(1, name="atom2")
        self.centers = np.linspace(0.0, CUTOFF, RBF)
        self.gamma = 0.5 / (self.centers[1] - self.centers[0]) ** 2

    def call(self, inputs):
        if isinstance(inputs, dict):
            inputs = inputs["species"], inputs["positions"]
        z, pos = inputs
        diff = pos[:, :, None, :] - pos[:, None, :, :]
        n = pos.shape[1]
        eye = ops.eye(n, dtype=pos.dtype)
        d = ops.sqrt(ops.sum(ops.square(diff), axis=-1) + eye)  # 1 on the diagonal, cut out below
        rbf = ops.exp(-self.gamma * ops.square(d[..., None] - ops.cast(self.centers, pos.dtype)))
        cut = 0.5 * (ops.cos(np.pi * d / CUTOFF) + 1.0) * ops.cast(d < CUTOFF, pos.dtype) * (1.0 - eye)
        h = self.embedding(z)
        for layer in self.interactions:
            h = layer(h, rbf, cut)
        return ops.sum(self.atom2(self.atom1(h)), axis=1)

    def train_step(self, data):
        x, y = data
        z, pos = (x["species"], x["positions"]) if isinstance(x, dict) else x
        energy, forces = (y["energy"], y["forces"]) if isinstance(y, dict) else y
        pos = ops.cast(pos, self.compute_dtype)
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                inner.watch(pos)
                e = self([z, pos], training=True)
                total = ops.sum(e)
            f = -inner.gradient(total, pos)
            loss = ops.mean(ops.square(ops.cast(energy, e.dtype) - e)) + 10.0 * ops.mean(
                ops.square(ops.cast(forces, f.dtype) - f)
            )
        grads = tape.gradient(loss, self.trainable_variables)
        grads = [tf.convert_to_tensor(g) for g in grads]  # the embedding's come as slices
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
        return {"loss": loss}


def build():
    model = Schnet()
    model([np.zeros((1, 5), "int64"), np.zeros((1, 5, 3), "float32")])
    return model
