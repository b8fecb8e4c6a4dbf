"""Which minerals are in an assay: sparse codes of spectra by unrolled, learned shrinkage."""

import keras
import numpy as np
import tensorflow as tf

CHANNELS = 40
MINERALS = 56
ROUNDS = 5


def dictionary():
    """Unit columns: each mineral has three bands at places of its own."""
    rng = np.random.default_rng(11)
    grid = np.arange(CHANNELS, dtype=np.float32)[:, None]
    columns = np.zeros((CHANNELS, MINERALS), np.float32)
    for _ in range(3):
        centre = rng.uniform(0, CHANNELS, MINERALS).astype(np.float32)
        width = rng.uniform(0.8, 2.5, MINERALS).astype(np.float32)
        height = rng.uniform(0.3, 1.0, MINERALS).astype(np.float32)
        columns += height * np.exp(-(((grid - centre) / width) ** 2))
    return columns / np.linalg.norm(columns, axis=0)


def shrink(x, threshold):
    return tf.sign(x) * tf.nn.relu(tf.abs(x) - threshold)


class LearnedShrinkage(keras.Model):
    """x <- shrink(W y + S z, theta), z a look ahead along the last move; S is shared by all rounds."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        atoms = dictionary()
        gram = atoms.T @ atoms
        step = np.float32(1.0 / np.linalg.eigvalsh(gram).max())
        self.atoms = tf.constant(atoms)
        self.analysis = keras.layers.Dense(
            MINERALS,
            use_bias=False,
            name="analysis",
            kernel_initializer=lambda shape, dtype=None: tf.cast(step * atoms, dtype),
        )
        self.inhibition = self.add_weight(
            name="inhibition",
            shape=(MINERALS, MINERALS),
            initializer=lambda shape, dtype=None: tf.cast(
                np.eye(MINERALS, dtype=np.float32) - step * gram, dtype
            ),
        )
        self.thresholds = [
            self.add_weight(
                name=f"threshold{i}", shape=(MINERALS,), initializer=keras.initializers.Constant(-3.5)
            )
            for i in range(ROUNDS)
        ]
        self.ahead = self.add_weight(
            name="ahead", shape=(ROUNDS - 1,), initializer=keras.initializers.Constant(0.3)
        )
        self.pull = 0.7
        self.sparsity = 0.02

    def codes(self, spectrum):
        drive = self.analysis(spectrum)
        code = shrink(drive, tf.nn.softplus(self.thresholds[0]))
        before = tf.zeros_like(code)
        codes = [code]
        for i in range(1, ROUNDS):
            look = code + self.ahead[i - 1] * (code - before)
            before = code
            code = shrink(drive + tf.matmul(look, self.inhibition), tf.nn.softplus(self.thresholds[i]))
            codes.append(code)
        return codes

    def call(self, spectrum):
        return self.codes(spectrum)[-1]

    def train_step(self, data):
        spectrum, target = data
        with tf.GradientTape() as tape:
            codes = self.codes(spectrum)
            loss = 0.0
            for i, code in enumerate(codes):
                share = self.pull ** (ROUNDS - 1 - i)
                loss += share * tf.reduce_mean(tf.reduce_sum(tf.square(code - target), axis=1))
            atoms = tf.cast(self.atoms, spectrum.dtype)
            residual = spectrum - tf.matmul(codes[-1], atoms, transpose_b=True)
            loss += tf.reduce_mean(tf.reduce_sum(tf.square(residual), axis=1))
            loss += self.sparsity * tf.reduce_mean(tf.reduce_sum(tf.abs(codes[-1]), axis=1))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


def build():
    model = LearnedShrinkage(name="shrinkage")
    model(tf.zeros((1, CHANNELS)))
    return model
